"""Which arrays JAX is given, and on what memory, by a stand-in for JAX that has 32 bits."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.frameworks.jax.arrays import shared_array

NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


@pytest.fixture(autouse=True)
def put(monkeypatch):
    """What JAX was given."""
    given = []
    narrowed = SimpleNamespace(canonicalize_dtype=lambda dtype: np.dtype(NARROW.get(dtype.name, dtype)))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(dtypes=narrowed, device_put=given.append))
    return given


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64", "bool"])
def test_arrays_are_given_on_their_own_memory(put, dtype):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    array.flags.writeable = False
    shared_array(array)
    assert np.shares_memory(put[0], array)


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">u2"])
def test_another_byte_order_is_turned_into_this_machines(put, dtype):
    shared_array(np.array([1, 2, 300], dtype))
    assert put[0].dtype.isnative
    assert put[0].tolist() == [1, 2, 300]


@pytest.mark.parametrize(
    ("values", "dtype", "narrow"),
    [
        ([0, 1 << 31], "int64", "int32"),
        ([-(1 << 31) - 1, 0], "int64", "int32"),
        ([1 << 32], "uint64", "uint32"),
        ([1 << 31], ">i8", "int32"),
    ],
)
def test_numbers_that_would_wrap_around_are_refused(put, values, dtype, narrow):
    text = rf"whole numbers from {values[0]} to {values[-1]}, and JAX takes {narrow} in place of {np.dtype(dtype).name}"
    with pytest.raises(ValueError, match=text):
        shared_array(np.array(values, dtype))
    assert put == []


def test_what_just_fits_and_what_has_no_rows_is_taken(put):
    for array in (np.array([-(1 << 31), (1 << 31) - 1]), np.array([0, (1 << 32) - 1], "u8"), np.zeros(0, "i8")):
        shared_array(array)
    assert len(put) == 3
