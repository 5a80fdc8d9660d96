"""Arrays and numbers by their parts."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.identity.parts import bytes_of, number_parts


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_the_bytes_of_an_array(shape):
    array = np.ones(shape, "f4")
    assert bytes_of(array).tobytes() == array.tobytes()


def test_the_bytes_of_an_array_are_not_copied():
    array = np.zeros(4, np.uint8)
    data = bytes_of(array)
    array[0] = 7
    assert data[0] == 7


def test_dtypes_and_fields():
    assert number_parts(np.dtype("f4")) != number_parts(np.dtype("f8"))
    fields = number_parts(np.zeros(2, [("a", "i4"), ("b", "f4")]))
    assert fields.kind == "fields"
    assert [len(each) for each in fields.content[-2:]] == [2, 2]
    assert number_parts(np.array(["a"], object)).data is None
