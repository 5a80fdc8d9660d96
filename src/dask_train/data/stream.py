"""Which pass over a data set it is: what an agent and a driver know of it."""

from __future__ import annotations

from typing import NamedTuple

from dask_train.data.plan import Shuffle


class Stream(NamedTuple):
    """One epoch of one call of ``batches()``.

    Attributes
    ----------
    dataset
        0 for the role's own data, 1 and on for published data sets.
    turn
        Which call of ``batches()`` it is, from 0.
    epoch, shuffle, seed
        What fixes the order.
    """

    dataset: int
    turn: int
    epoch: int
    shuffle: Shuffle
    seed: int
