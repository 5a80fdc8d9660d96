"""What every reader of a data set knows of all of it: a small value, the same for all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from dask_train.data.columns import Columns


@dataclass(frozen=True, kw_only=True)
class Table:
    """A data set, and which host serves which part of it.

    Attributes
    ----------
    schema
        Its columns.
    lengths
        int64 ``(num_partitions,)``: rows of each partition.
    owner
        int64 ``(num_partitions,)``: the host whose ranks get a partition's rows first.
    host_of_rank
        int64 ``(num_ranks,)``: the host of each rank.
    window
        Partitions of a group, where the data set is streamed: computed a group at a time and freed behind; else None.
    """

    schema: Columns
    lengths: np.ndarray = field(repr=False)
    owner: np.ndarray = field(repr=False)
    host_of_rank: np.ndarray = field(repr=False)
    window: int | None = None

    @property
    def num_rows(self) -> int:
        """Rows of all partitions."""
        return int(self.lengths.sum())

    def has_joined(self, rank: int) -> bool:
        """Return whether a rank has joined later, and may be on any host."""
        return rank >= len(self.host_of_rank)

    def host_of(self, rank: int) -> int:
        """Return the host of a rank; one that has joined later counts as on that of the first."""
        return int(self.host_of_rank[0 if self.has_joined(rank) else rank])

    def among(self, size: int) -> Self:
        """Return the same table for that many ranks."""
        if len(self.host_of_rank) == size:
            return self
        return replace(self, host_of_rank=np.array([self.host_of(rank) for rank in range(size)], np.int64))
