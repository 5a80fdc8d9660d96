"""What is text, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.collections.partition.text import text_rows


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, "Row 1 of data is missing. Drop such rows, or fill them"),
        (np.nan, "Row 1 of data is missing"),
        (3, r"Row 1 of data is 3, no text. Drop such rows, or fill them: .fillna"),
        (bytearray(b"a"), "is bytearray.*, no text"),
    ],
)
def test_what_is_no_text_is_named(value, match):
    array = np.array([["a", "b"], [None, "c"]], object)
    array[1, 0] = value
    with pytest.raises(TypeError, match=match):
        text_rows("of data", array)
