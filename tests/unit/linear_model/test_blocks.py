"""Predictions a block of rows at a time."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from dask_train.linear_model.blocks import Prediction, by_block, over_blocks

X = np.arange(24.0).reshape(12, 2)
PREDICT = Prediction(np.array([[1.0, -2.0]]), np.array([3.0]), np.ravel)


def on_dask(array):
    return da.from_array(array, chunks=((5, 0, 1, 6), *array.shape[1:]))


def test_holes_of_a_partition_are_refused_when_it_is_computed():
    holes = X.copy()
    holes[7, 0] = np.nan
    lazy = by_block(PREDICT, on_dask(holes), 0, float)
    with pytest.raises(ValueError, match="X has values that are NaN or infinite"):
        lazy.compute()


@pytest.mark.parametrize("dtype", ["i1", "f4", "O"])
def test_numbers_of_any_dtype_are_predicted_in_float64(dtype):
    found = by_block(PREDICT, on_dask(X.astype(dtype)), 0, float)
    assert found.chunks == ((5, 0, 1, 6),)
    np.testing.assert_array_equal(found.compute(), X @ [1, -2] + 3)


def test_other_coefficients_are_another_collection():
    lazy, again = (by_block(PREDICT, on_dask(X), 0, float).name for _ in range(2))
    other = Prediction(np.array([[1.0, -2.5]]), np.array([3.0]), np.ravel)
    assert lazy == again != by_block(other, on_dask(X), 0, float).name


def test_only_blocks_with_rows_are_looked_at():
    assert [int(found) for found in over_blocks(np.max, on_dask(X))] == [9, 11, 23]
    with dask.config.set(scheduler="synchronous"):
        assert over_blocks(np.max, on_dask(X)[:0]) == []
