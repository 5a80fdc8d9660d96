"""How many workers share each batch where they train with parameter servers, each at its own pace."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class WorkerCounts:
    """Numbers of workers, and the step from which on each of them shares the batches.

    Attributes
    ----------
    changes
        ``(first step, number of workers)``, ascending. Steps are counted from 0, where training was begun: one for each
        global batch.

    Notes
    -----
    Workers are at different steps. So another number begins with a step that no worker has begun, and each worker
    shares the batches before it as they were. Then each row is one worker's, whatever step the others are at.
    """

    changes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, changes: Sequence[Sequence[int]]) -> Self:
        """Return the numbers that a checkpoint has as lists."""
        return cls(tuple((first, workers) for first, workers in changes))

    @property
    def last(self) -> int:
        """Return the number of workers that share the last batches."""
        return self.changes[-1][1]

    @property
    def most(self) -> int:
        """Return the largest number of workers that share any batch."""
        return max(workers for _, workers in self.changes)

    @property
    def shrinks(self) -> bool:
        """Return whether the last change was to fewer workers."""
        return len(self.changes) > 1 and self.changes[-2][1] > self.last

    def at(self, step: int) -> int:
        """Return the number of workers that share the batch of a step."""
        return next(workers for first, workers in reversed(self.changes) if first <= step)

    def then(self, first: int, workers: int) -> Self:
        """Return these numbers up to a step, and another one from there on."""
        before = tuple(change for change in self.changes if change[0] < first)
        return type(self)(before if before and before[-1][1] == workers else (*before, (first, workers)))

    def next_of(self, rank: int, step: int) -> int | None:
        """Return the first step from ``step`` on whose batch a worker has a share of; None if there is none."""
        for first, stop, _ in self.stretches(rank):
            if stop is None or stop > step:
                return max(first, step)
        return None

    def stretches(self, rank: int) -> Iterator[tuple[int, int | None, int]]:
        """Yield the steps whose batches a worker has shares of: first, stop (None: to the end), number of workers."""
        for (first, workers), after in itertools.zip_longest(self.changes, self.changes[1:]):
            if rank < workers:
                yield first, None if after is None else after[0], workers

    def taken(self, rank: int, steps: int) -> list[tuple[int, int, int]]:
        """Return those of :meth:`stretches` that lie before a step: first, stop, number of workers."""
        stretches = self.stretches(rank)
        ended = [(first, steps if stop is None else min(stop, steps), size) for first, stop, size in stretches]
        return [each for each in ended if each[0] < each[1]]

    def num_taken(self, steps_by_rank: Mapping[int, int]) -> int:
        """Return how many steps workers have taken that are before these: none of batches that were others' alone."""
        ended = (each for rank, steps in steps_by_rank.items() for each in self.taken(rank, steps))
        return sum(stop - first for first, stop, _ in ended)
