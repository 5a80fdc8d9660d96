"""Rows of a partition as solvers take them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dask_train.linear_model.rows import BLOCK_ROWS, blocks_of, dense, rows_of


def test_weights_are_1_by_default_and_all_is_float64():
    x, y, weight = rows_of(np.ones((3, 2), "f4"), [1, 2, 3])
    assert x.dtype == np.float32, "as it is: blocks of it are turned"
    assert (y.dtype, weight.dtype, weight.tolist()) == (np.float64, np.float64, [1.0] * 3)
    assert [rows.dtype for rows, _, _ in blocks_of([(x, y, weight)])] == [np.float64]
    x, *_ = rows_of(sparse.coo_matrix(np.eye(3, dtype="f4")), [1, 2, 3], [1, 0, 1])
    assert (x.format, x.dtype) == ("csr", np.float64)
    np.testing.assert_array_equal(dense(x), np.eye(3))


@pytest.mark.parametrize(
    ("x", "y", "weight", "told"),
    [
        ([[np.nan]], [1.0], None, "X has values that are NaN"),
        (sparse.csr_matrix([[np.inf]]), [1.0], None, "X has values that are NaN or infinite"),
        ([[1.0]], [np.nan], None, "y has values"),
        ([[1.0]], [1.0], [np.inf], "sample_weight has values that are NaN"),
        ([[1.0]], [1.0], [-0.1], "sample_weight has values below 0. Pass 0"),
        ([[1.0]], ["yes"], None, "y has values that are no numbers: .*'yes'. Classes are for a classifier"),
        (
            [[1.0]],
            [1.0],
            ["a"],
            "sample_weight has values that are no numbers: could not convert string to float: 'a'.$",
        ),
    ],
)
def test_what_is_no_row(x, y, weight, told):
    with pytest.raises(ValueError, match=told):
        rows_of(x if sparse.issparse(x) else np.array(x), y, weight)


@pytest.mark.parametrize("num_rows", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS])
def test_blocks_are_all_rows_in_order(num_rows):
    x = np.arange(num_rows, dtype="f8")[:, None]
    found = [*blocks_of([(x, x[:, 0], x[:, 0]), (x[:2], x[:2, 0], x[:2, 0])])]
    assert all(len(rows) <= BLOCK_ROWS and (rows[:, 0] == y).all() and (y == weight).all() for rows, y, weight in found)
    together = np.concatenate([y for _, y, _ in found]) if found else np.empty(0)
    np.testing.assert_array_equal(together, np.concatenate([x[:, 0], x[:2, 0]]))
