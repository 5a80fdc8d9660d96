"""Ranks that are threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dask_train.linear_model.steps import UNASKED


@pytest.fixture
def ranks_of():
    """Runs a task on ranks that are threads; sums are made in the order of the ranks."""

    class Rank:
        def __init__(self, number, parts, shared, waiting):
            self.world_rank, self._parts, self._shared, self._waiting = number, parts, shared, waiting
            self.steps = UNASKED

        def partitions(self):
            return iter(self._parts)

        def _all(self, value):
            self._shared[self.world_rank] = value
            self._waiting.wait(60)
            found = list(self._shared)
            self._waiting.wait(60)
            return found

        def all_reduce(self, arrays, op="sum"):
            every = self._all(arrays)
            together = np.maximum.reduce if op == "max" else sum
            return [*map(together, zip(*every, strict=True))] if isinstance(arrays, list) else together(every)

        def broadcast(self, arrays, root=0):
            return self._all(arrays)[root].copy()

        def all_gather(self, rows):
            return np.concatenate(self._all(rows))

    def run(parts, task):
        shared, waiting, found = [None] * len(parts), threading.Barrier(len(parts)), {}

        def take_part(number):
            try:
                found[number] = task(Rank(number, parts[number], shared, waiting))
            except BaseException:
                waiting.abort()
                raise

        threads = [threading.Thread(target=take_part, args=(number,)) for number in range(len(parts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), f"ranks wait for each other; there are results of {sorted(found)}"
        return [found[number] for number in range(len(parts))]

    return run
