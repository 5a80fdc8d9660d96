"""What goes through the shared memory of a model process."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.data.columns import TEXT, Column
from dask_train.data.text import unpacked
from dask_train.predicting.server.values import packed_texts, size_bytes, views

COLUMNS = (
    Column(dtype=TEXT, row_shape=()),
    Column(dtype="<f4", row_shape=(2,)),
    Column(dtype=TEXT, row_shape=(2,)),
    Column(dtype="<i8", row_shape=()),
)


def test_text_and_numbers_side_by_side():
    one = np.array(["", "caf\u00e9\0", "x" * 1000, "b"], object)
    two = np.array([[b"a\xff", ""], [b"", "b"], [b"c", "d"], ["", ""]], object)
    arrays = [one, np.arange(8, dtype="f4").reshape(4, 2), two, np.arange(4)]
    images = packed_texts("a block", COLUMNS, arrays)
    sizes = [images[0].nbytes, images[2].nbytes]
    memory = bytearray(size_bytes(COLUMNS, 4, sizes))
    for target, image in zip(views(memory, COLUMNS, 4, sizes), images, strict=True):
        np.copyto(target, image)
    found = [
        unpacked(view, np.arange(4), column.row_shape) if column.is_text else view
        for column, view in zip(COLUMNS, views(memory, COLUMNS, 4, sizes), strict=True)
    ]
    for each, expected in zip(found, arrays, strict=True):
        assert each.tolist() == expected.tolist()


def test_what_is_no_text_is_named():
    with pytest.raises(TypeError, match="Row 2 of array 0 of a block is missing"):
        packed_texts("a block", COLUMNS[:1], [np.array(["a", "b", None], object)])
