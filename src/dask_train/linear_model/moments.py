"""Means of all columns over all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.rows import blocks_of


def moments(ranks: Ranks, parts: list[Any], num_features: int) -> tuple[float, np.ndarray, int]:
    """Return the weight of all rows, the means of features and then targets, and how many targets there are.

    Parameters
    ----------
    ranks
        The ranks that have rows.
    parts
        This rank's: of each features ``(n, p)``, targets ``(n, t)`` and weights ``(n,)``.
    num_features
        How many there are, also where a rank has no rows.

    Returns
    -------
    tuple
        A float, float64 ``(p + t,)``, and t.

    Raises
    ------
    ValueError
        No row counts.
    """
    num_targets = int(ranks.all_reduce(np.array(max((y.shape[1] for _, y, _ in parts), default=0)), op="max"))
    sums = [np.zeros(1), np.zeros(num_features + num_targets)]
    for x, y, weight in () if ranks.steps.knows_next else blocks_of(parts):
        sums[0] += weight.sum()
        sums[1] += np.concatenate([np.asarray(x.T @ weight).ravel(), weight @ y])
    total, means = ranks.all_reduce(sums)
    return check_total(float(total[0])), means / total, num_targets


def check_total(total: float) -> float:
    """Return the weight of all rows, which has to be above 0.

    Raises
    ------
    ValueError
        It is not.
    """
    if not total > 0:
        raise ValueError("The sample weights come to 0, so no row counts. Pass some that are above 0.")
    return total
