"""Sparse partitions as rows of bytes."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dask_train.linear_model.packed import OnPacked, packed
from dask_train.linear_model.ranks import Alone


def test_packed_partitions_come_back_and_empty_ones_do_not():
    whole = sparse.random(5, 3, 0.5, format="csr", random_state=0)

    class Packed(Alone):
        def partitions(self):
            for rows in (whole, whole[:0], whole[:2]):
                yield (packed(rows, np.arange(rows.shape[0]))[0],)

    found = OnPacked(lambda ranks: (list(ranks.partitions()), ranks.world_rank))(Packed())
    (first, second), rank = found
    assert rank == 0, "what else ranks have"
    np.testing.assert_array_equal(first[0].toarray(), whole.toarray())
    assert (first[1].tolist(), second[1].tolist()) == ([0, 1, 2, 3, 4], [0, 1])


def test_a_sparse_partition_travels_as_a_row_of_bytes(ranks_of):
    rows = sparse.random_array((20, 3), density=0.5, rng=0, format="csr")
    parts = [[packed(rows, np.arange(20.0))], [packed(rows[:0], np.empty(0)), packed(rows)]]
    seen = ranks_of(parts, OnPacked(lambda ranks: [[part[0].shape for part in ranks.partitions()], ranks.world_rank]))
    assert seen == [[[(20, 3)], 0], [[(20, 3)], 1]], "none without rows, as of dense ones"
