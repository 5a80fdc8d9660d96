"""Which batches a role has taken: kept in shared memory, so it is known to the last batch however the role ends."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

_FIELDS = 11
_RECORD_BYTES = 8 * _FIELDS
# The batch size of rows that were taken without batches, whole partitions at a time.
WHOLE = -1
_GROWTH = 512  # records; 28 kB at a time


@dataclass(frozen=True, kw_only=True)
class BatchRange:
    """Batches that one role has taken one after the other, in one epoch.

    Attributes
    ----------
    dataset
        0 for the role's own data; 1 and on for published data sets, as it opened them.
    turn
        Which call of ``batches()`` or ``partitions()`` it was, from 0. A call that begins where the last one has left
        off counts as that one.
    epoch, batch_size
        As in that call; with :data:`WHOLE` what follows are rows, not batches.
    first
        The first batch.
    taken, done
        How many batches it was given, and how many it came back from.
    size
        Number of ranks that shared these batches. Default: 0, as many as the run began with.
    shares
        Number of shares that each batch was cut into, of which a rank has several. Default: 0, one per rank.
    rank, is_open
        With :data:`WHOLE`: the rank whose own partitions these are, which no other rank has; and whether there may be
        more of them in this pass. Default: -1 and 0, of batches.
    """

    dataset: int
    turn: int
    epoch: int
    batch_size: int
    first: int
    taken: int = 0
    done: int = 0
    size: int = 0
    shares: int = 0
    rank: int = -1
    is_open: int = 0

    @classmethod
    def of(cls, record: Sequence[int]) -> BatchRange:
        """Return the stretch that :func:`read_account` has described; fields that are missing have their defaults."""
        return cls(**dict(zip(cls.__dataclass_fields__, record, strict=False)))


class Account:
    """Written by a role process as it goes, without a message: two stores a batch.

    Parameters
    ----------
    descriptor
        A file in memory, which the role's agent holds, too; it grows with the epochs.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._num = 0
        self._sealed = False
        self._left: list[int] = []  # stretches whose loops were left, for a reason that is not yet known
        self._map: np.ndarray = np.empty((0, _FIELDS), np.int64)

    @property
    def has_begun(self) -> bool:
        """Return whether a data set has been opened for reading."""
        return self._num > 0

    def begin(self, stretch: BatchRange) -> int:
        """Begin an epoch of a data set; return the number of the stretch, as several may be open at a time."""
        self.settle()
        if self._num == len(self._map):
            size = self._num + _GROWTH
            os.ftruncate(self._descriptor, size * _RECORD_BYTES)
            self._map = np.frombuffer(mmap.mmap(self._descriptor, size * _RECORD_BYTES), np.int64).reshape(-1, _FIELDS)
        self._map[self._num] = astuple(replace(stretch, taken=0, done=0))
        self._num += 1
        return self._num - 1

    def taken(self, stretch: int, num: int = 1) -> None:
        """Note that the role has been given a batch, or that many rows."""
        if self._left:
            self.settle()
        self._map[stretch, 5] += num

    def done(self, stretch: int) -> None:
        """Note that the role has come back from the batch that it was given last."""
        if not self._sealed:
            self._map[stretch, 6] = self._map[stretch, 5]

    def over(self, stretch: int) -> None:
        """Note that a pass over whole partitions has ended: there are no more, or the loop was left."""
        self._map[stretch, 10] = 0

    def left(self, stretch: int) -> None:
        """Note that a loop over batches was left: by ``break``, or by an error that leaves the role's function, too.

        Python closes the loop's generator before the reason is known. A role that continues afterwards was done with
        the batch.
        """
        self._left.append(stretch)

    def settle(self) -> None:
        """Count the batches at which loops were left as done: the role's function works on, or has returned."""
        while self._left:
            self.done(self._left.pop())

    def covered(self) -> list[list[int]]:
        """Return the fields of each :class:`BatchRange`, as they are where all that was taken is kept.

        Without sizes: the ranks that resume with it may be others, and all of them have these batches behind them.
        """
        records = self._map[: self._num].copy()
        records[:, 6], records[:, 7] = records[:, 5], 0
        ranges: list[list[int]] = records.tolist()
        return ranges

    def all_done(self) -> None:
        """Note that the role has kept all that it was given in a checkpoint."""
        for stretch in range(self._num):
            self.done(stretch)

    def seal(self) -> None:
        """Count the batches in hand as not trained on: the role's function has raised."""
        self._sealed = True


def read_account(descriptor: int) -> list[list[int]]:
    """Return what stands in an account: the fields of each :class:`BatchRange`, as plain lists."""
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    records = np.frombuffer(data, np.int64).reshape(-1, _FIELDS)
    return records[records[:, 3] != 0].tolist()
