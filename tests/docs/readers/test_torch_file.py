"""Files of PyTorch are read without PyTorch; what is more than tensors is refused and not run."""

from __future__ import annotations

import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dask_train.errors import DataError
from readers.torch_file import read_tensors

DATA = np.arange(12, dtype="<f4")


class Global:
    """Pickles as a name of a module that is not there."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Called:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Pickler(pickle._Pickler):  # the one in Python, which can be told how a name is written
    """Writes what ``torch.save`` writes."""

    def persistent_id(self, value: Any) -> Any:
        return value[1:] if isinstance(value, tuple) and value[:1] == ("a storage",) else None

    def save_named(self, value: Global) -> None:
        self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        self.memoize(value)

    def save_called(self, value: Called) -> None:
        self.save(value.function)
        self.save(value.arguments)
        self.write(pickle.REDUCE)
        self.memoize(value)

    dispatch: ClassVar = {**pickle._Pickler.dispatch, Global: save_named, Called: save_called}


def tensor(offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Called:
    storage = ("a storage", "storage", Global("torch", "FloatStorage"), "7", "cpu", len(DATA), None)
    return Called(Global("torch._utils", "_rebuild_tensor_v2"), storage, offset, shape, stride, False, {})


def content_of(value: Any, *, magic: int = 0x1950A86A20F9469CFC6C) -> bytes:
    file = io.BytesIO()
    for part in (magic, 1001, {"little_endian": True}, value, ["7"]):
        Pickler(file, 2).dump(part)
    return file.getvalue() + struct.pack("<q", len(DATA)) + DATA.tobytes()


def test_tensors_are_views_of_their_storage(tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    path.write_bytes(content_of({"whole": tensor(0, (3, 4), (4, 1)), "turned": tensor(2, (2, 3), (1, 2))}))
    found = read_tensors(path)
    np.testing.assert_array_equal(found["whole"], DATA.reshape(3, 4))
    np.testing.assert_array_equal(found["turned"], [[2, 4, 6], [3, 5, 7]])
    assert np.shares_memory(found["whole"], found["turned"])
    assert not found["whole"].flags.writeable


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (content_of({"a": Called(Global("os", "mkdir"), "made-by-the-file")}), "it refers to os.mkdir"),
        (content_of({"a": Called(Global("builtins", "eval"), "1")}), "it refers to builtins.eval"),
        (content_of({"a": tensor(0, (3, 5), (5, 1))}), r"shape \(3, 5\) lies beyond its storage of 12"),
        (content_of({"a": tensor(0, (3,), (-1,))}), "lies beyond its storage"),
        (content_of({"a": 3}), "can't be read as tensors"),
        (content_of({"a": tensor(0, (3,), (1,))})[:-1], "can't be read as tensors"),
        (content_of({"a": tensor(0, (3,), (1,))}) + b"1", "more after the last storage"),
        (content_of({}, magic=1), "it begins with 1, 1001"),
        (b"PK\x03\x04 a zip file", "is of PyTorch 1.6 or later"),
        (b"", "can't be read as tensors"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: bytes, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.pth"
    path.write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_tensors(path)
    assert os.listdir(tmp_path) == ["net.pth"], "nothing of the file was run"
