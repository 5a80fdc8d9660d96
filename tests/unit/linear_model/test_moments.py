"""Means of all columns over all ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dask_train.linear_model.moments import moments
from dask_train.linear_model.ranks import Alone

RNG = np.random.default_rng(0)
X, Y, WEIGHT = RNG.normal(size=(9, 3)), RNG.normal(size=(9, 2)), RNG.random(9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_ranks_have_those_of_all_rows(kind, ranks_of):
    parts = [
        [(kind(X[:4]), Y[:4], WEIGHT[:4])],
        [],
        [(kind(X[4:5]), Y[4:5], WEIGHT[4:5]), (kind(X[5:]), Y[5:], WEIGHT[5:])],
    ]
    for total, means, num_targets in ranks_of(parts, lambda rank: moments(rank, list(rank.partitions()), 3)):
        assert (total, num_targets) == (pytest.approx(WEIGHT.sum()), 2)
        np.testing.assert_allclose(means, np.average(np.column_stack([X, Y]), axis=0, weights=WEIGHT))


def test_some_row_has_to_count():
    with pytest.raises(ValueError, match="The sample weights come to 0"):
        moments(Alone(), [(X, Y, np.zeros(9))], 3)
