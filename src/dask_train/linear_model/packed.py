"""Sparse partitions in shared memory, which has rows of numbers and of bytes only: each is one row of bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dask_train.linear_model.ranks import Ranks


def packed(*columns: Any) -> np.ndarray:
    """A partition's columns as one row, objects ``(1,)``."""
    found = np.empty(1, object)
    found[0] = pickle.dumps(columns, protocol=5)
    return found


class Unpacked:
    """Ranks whose partitions are what :func:`packed` was given; all else is theirs."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def partitions(self) -> Iterator[Any]:
        """This rank's own that have rows, copied out of the shared memory once."""
        for (row,) in self._ranks.partitions():
            columns = pickle.loads(row)  # noqa: S301 - the bytes are our own
            if columns[0].shape[0]:
                yield columns

    def __getattr__(self, name: str) -> Any:
        """What ranks have besides."""
        return getattr(self._ranks, name)


class OnPacked:
    """A task for ranks that have packed partitions."""

    def __init__(self, task: Callable[[Any], Any]) -> None:
        self._task = task

    def __call__(self, ranks: Ranks) -> Any:
        return self._task(Unpacked(ranks))
