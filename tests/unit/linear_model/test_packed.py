"""Sparse partitions as rows of bytes."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dask_train.linear_model.packed import packed, unpacked


def test_packed_partitions_come_back_and_empty_ones_do_not():
    whole = sparse.random(5, 3, 0.5, format="csr", random_state=0)
    first, second = unpacked(packed(rows, np.arange(rows.shape[0])) for rows in (whole, whole[:0], whole[:2]))
    np.testing.assert_array_equal(first[0].toarray(), whole.toarray())
    assert (first[1].tolist(), second[1].tolist()) == ([0, 1, 2, 3, 4], [0, 1])
