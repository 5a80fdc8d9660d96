"""Text as it lies in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.collections.partition.text import text_rows
from dask_train.data.text import packed, unpacked

ROWS = ["", "caf\u00e9\0", b"", b"\xff\0", "x" * 1000, b"y" * 1000]


@pytest.mark.parametrize("row_shape", [(), (2,), (1, 3)])
def test_each_comes_back_as_it_was(row_shape):
    array = np.empty(len(ROWS), object)
    array[:] = ROWS
    array = array.reshape(-1, *row_shape)
    found = unpacked(packed(array), np.arange(len(array)), row_shape)
    assert found.tolist() == array.tolist()
    assert [type(value) for value in found.ravel()] == [type(value) for value in ROWS]


def test_some_rows_of_images_that_follow_each_other():
    images = [packed(np.array(texts, object)) for texts in (["a", "bb"], [b"\xfe", "ccc", ""])]
    padding = -images[0].nbytes % 16
    memory = np.concatenate([images[0], np.zeros(padding, np.uint8), images[1]])
    second = (images[0].nbytes + padding) // 16
    assert unpacked(memory, np.array([second + 1, 1, second]), ()).tolist() == ["ccc", "bb", b"\xfe"]


@pytest.mark.parametrize("dtype", ["U3", "S3", np.dtypes.StringDType()])
def test_numpys_own_kinds(dtype):
    array = np.array(["a", "bb"], dtype)
    texts = text_rows("of data", array)
    assert unpacked(packed(texts), np.arange(2), ()).tolist() == array.tolist()
