"""The idx format: what is written comes back, and what is something else is said to be so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dask_train.datasets.idx import read_idx, write_idx
from dask_train.errors import DataError


def test_idx_files_come_back_as_they_were_written_without_a_copy(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "some-idx3-ubyte"
    write_idx(path, array.transpose(1, 0, 2))
    assert path.read_bytes()[:16] == bytes.fromhex("00000803 00000003 00000002 00000004")
    read = read_idx(path, (3, 2, 4))
    np.testing.assert_array_equal(read, array.transpose(1, 0, 2))
    assert not read.flags.owndata
    with pytest.raises(DataError, match=r"begins with 00 00 08 03 00 00 00 03 .*, not 00 00 08 03 00 00 00 02 .*\.gz"):
        read_idx(path, (2, 3, 4))
    with pytest.raises(DataError, match=r"none-idx1-ubyte can't be read: \[Errno 2\]"):
        read_idx(tmp_path / "none-idx1-ubyte", (3,))


@pytest.mark.parametrize("shape", [(0,), (0, 28, 28), (1,), (1, 1)])
def test_arrays_without_a_value_or_with_one(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "few"
    write_idx(path, np.full(shape, 255, np.uint8))
    read = read_idx(path, shape)
    assert (read.shape, read.dtype) == (shape, np.uint8)
    assert not read.flags.writeable
    assert (read == 255).all()


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda _: b""])
def test_a_file_of_another_size_is_torn(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "torn"
    write_idx(path, np.zeros((2, 3), np.uint8))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=r"bytes, not 18\. It is torn"):
        read_idx(path, (2, 3))
