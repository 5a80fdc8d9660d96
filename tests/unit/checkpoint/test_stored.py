"""Values come back as they were, and nothing is run to read them."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest

from dask_train.checkpoint.stored import ARRAYS, VALUES, store, stored


def test_what_is_stored_comes_back(tmp_path):
    value = {
        "none": None,
        "numbers": [True, 1, 2.5, -math.inf, 1 << 80],
        "text": "ä",
        "bytes": b"\x00\xff",
        "by number": {0: [np.arange(3)], 7: []},
        "by pair": {(1, ("a", b"b")): 2.0, (): 0},
        "inner": {"a": {}, "b": (1, "x")},
    }
    store(tmp_path, value)
    found = stored(tmp_path)
    np.testing.assert_array_equal(found["by number"].pop(0), [[0, 1, 2]])
    assert found == {**value, "by number": {7: []}, "inner": {"a": {}, "b": [1, "x"]}}
    assert {file.name for file in tmp_path.iterdir()} == {VALUES, ARRAYS}
    json.loads((tmp_path / VALUES).read_text())


@pytest.mark.parametrize(
    "array",
    [
        np.float32(0.5) * np.ones((2, 3), "f4"),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 4), "i2"),
        np.array(3.0),
        np.array(["a", "bc"]),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array(1.5, ml_dtypes.bfloat16),
        np.array([[1, 2]], ml_dtypes.float8_e4m3fn).T,
    ],
)
def test_arrays(tmp_path, array):
    store(tmp_path, [array])
    (found,) = stored(tmp_path)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


def test_scalars_become_numbers(tmp_path):
    store(tmp_path, [np.float32(0.5), np.int64(3), np.bool_(True), np.str_("x")])
    assert stored(tmp_path) == [0.5, 3, True, "x"]


@pytest.mark.parametrize(
    ("value", "where"),
    [({"a": [0, object()]}, r"\['a'\]\[1\] is a object"), ([np.array([object()])], r"\[0\] is a ndarray")],
)
def test_what_can_not_be_stored_is_named(tmp_path, value, where):
    with pytest.raises(TypeError, match=f"{where}, which can't be stored"):
        store(tmp_path, value)
