"""A sample of the rows of all ranks: where a fit of many rows begins."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_train.linear_model.ranks import Ranks

# From this many rows on; of fewer a fit takes less than what it saves.
FEWEST_ROWS = 50_000
# The share of the rows, or this many for each coefficient if that is more: their minimum is then off by the root of one
# in a hundred, in units of the curvature. What is more than the largest share brings less than it costs.
_SHARE, _FOR_EACH, _LARGEST_SHARE = 1 / 32, 100, 1 / 8


@dataclass(frozen=True)
class Sample:
    """Rows of this rank, and of all ranks together.

    Attributes
    ----------
    parts
        This rank's: of each features, targets and weights.
    total
        The weight of those of all ranks.
    tol
        Gradient to which a fit of them is meaningful: a fifth of the error of the mean of that many rows.
    """

    parts: list[Any]
    total: float
    tol: float


def sample_of(ranks: Ranks, parts: list[Any], num_rows: int, size: int) -> Sample | None:
    """Return some rows of all ranks, copied; the same ones in each run, with any number of ranks.

    Parameters
    ----------
    ranks
        The ranks that have rows.
    parts
        This rank's: of each features, targets and weights.
    num_rows, size
        The rows of all ranks, and the coefficients.

    Returns
    -------
    Sample or None
        None of so few rows that it would not pay.
    """
    share = max(_SHARE, _FOR_EACH * size / max(num_rows, 1))
    if num_rows < FEWEST_ROWS or share > _LARGEST_SHARE:
        return None
    drawn = []
    for x, y, weight in parts:
        seed = zlib.crc32(np.ascontiguousarray(y).data)  # a partition's own, whichever rank has it
        rows = np.flatnonzero(np.random.default_rng(seed).random(len(y)) < share)
        drawn.append((x[rows], y[rows], weight[rows]))
    total = float(ranks.all_reduce(np.array(sum(float(weight.sum()) for _, _, weight in drawn))))
    return Sample(drawn, total, 0.1 / np.sqrt(share * num_rows)) if total > 0 else None
