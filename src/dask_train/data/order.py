"""One rank's share of each global batch, as rows of the whole data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dask_train.data.plan import EpochPlan, Shuffle, global_batches


def shares(
    lengths: Sequence[int],
    *,
    batch_size: int,
    rank: int,
    size: int,
    shuffle: Shuffle,
    seed: int,
    epoch: int,
    first: int = 0,
) -> Iterator[tuple[slice | np.ndarray, int]]:
    """One rank's rows of each global batch of an epoch.

    Parameters
    ----------
    lengths
        Rows of each partition; they are numbered through.
    batch_size
        Rows of a global batch; the last one may have fewer.
    rank, size
        Which of how many ranks.
    shuffle, seed, epoch
        As of :class:`~dask_train.data.plan.EpochPlan`.
    first
        The batch to begin with.

    Yields
    ------
    rows, global_rows
        This rank's rows, a slice or an int64 index array; and how many the global batch has over all ranks. The
        ranks' shares differ by at most one row, and one is empty only where the global batch has fewer rows than ranks.
    """
    sizes = np.asarray(lengths, np.int64)
    offsets = np.cumsum(sizes) - sizes
    plan = EpochPlan(lengths=sizes, shuffle=shuffle, seed=seed, epoch=epoch)
    for partition, row in global_batches(plan, batch_size, first):
        low, high = (part * len(row) // size for part in (rank, rank + 1))
        rows = offsets[partition[low:high]] + row[low:high]
        if shuffle is False and high > low:
            yield slice(int(rows[0]), int(rows[-1]) + 1), len(row)
        else:
            yield rows, len(row)
