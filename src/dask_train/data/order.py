"""One rank's share of each global batch: rows that lie on its own host as far as there are such."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dask_train.data.plan import WINDOW_ROWS, EpochPlan, Rows


@dataclass(frozen=True, kw_only=True)
class Share:
    """One rank's rows of a global batch, in the order that they have there.

    Attributes
    ----------
    partition, row
        int64 ``(k,)``: of each row its partition, and its number there.
    global_rows
        Rows of the global batch over all ranks.
    """

    partition: np.ndarray = field(repr=False)
    row: np.ndarray = field(repr=False)
    global_rows: int


def shares(
    plan: EpochPlan,
    *,
    batch_size: int,
    rank: int,
    size: int,
    owner: np.ndarray | None = None,
    host_of_rank: np.ndarray | None = None,
    first: int = 0,
) -> Iterator[Share]:
    """One rank's rows of each global batch of an epoch; no batch goes on into the next epoch.

    Parameters
    ----------
    plan
        The order of the epoch.
    batch_size
        Rows of a global batch; the last one may have fewer.
    rank, size
        Which of how many ranks.
    owner, host_of_rank
        int64 ``(num_partitions,)`` and ``(size,)``: the host that holds each partition, and the one of each rank;
        without them each global batch is cut in the order that it has.
    first
        The batch to begin with.

    Yields
    ------
    Share
        Of n rows, ``(rank + 1) * n // size - rank * n // size``: one is empty only where n is less than the ranks. All
        ranks' shares are the batch, each row once.

    Notes
    -----
    The first rows of a batch that lie on a host go to the ranks there, as many as those take; each gets its part of
    them, so that they lack equally many. The others, host by host, go to the ranks that lack rows, also host by host,
    so that a rank's come from few hosts. Many batches are worked out at once, since NumPy's calls cost more than the
    rows of a small one.
    """
    assert (owner is None) == (host_of_rank is None)
    num_hosts = 0
    if owner is not None and host_of_rank is not None:
        assert len(host_of_rank) == size
        assert min(owner.min(initial=0), host_of_rank.min()) >= 0
        num_hosts = 1 + int(max(owner.max(initial=0), host_of_rank.max()))
    num_batches = max(1, WINDOW_ROWS // max(batch_size, num_hosts))
    for partition, nth in _windows(plan, batch_size, first, num_batches):
        global_rows = min(batch_size, len(nth))
        begin, end = (part * global_rows // size for part in (rank, rank + 1))
        if owner is None or host_of_rank is None:
            taken = np.arange(len(nth)).reshape(-1, global_rows)[:, begin:end].ravel()
        else:
            taken = _near(owner[partition].reshape(-1, global_rows), host_of_rank, rank, num_hosts)
        mine, row = partition[taken], plan.rows(partition[taken], nth[taken])
        for batch in range(len(nth) // global_rows):
            its = slice(batch * (end - begin), (batch + 1) * (end - begin))
            yield Share(partition=mine[its], row=row[its], global_rows=global_rows)


def _windows(plan: EpochPlan, batch_size: int, first: int, num_batches: int) -> Iterator[Rows]:
    """The order from batch ``first`` on, in pieces of whole batches, so many at most; the last may be a part of one."""
    held: list[Rows] = []
    num_held, most = 0, batch_size * num_batches
    for stretch in plan.order(first * batch_size):
        held.append(stretch)
        num_held += len(stretch[0])
        if num_held < most:
            continue
        partition, nth = (np.concatenate(parts) for parts in zip(*held, strict=True))
        num_held %= most
        for start in range(0, len(nth) - num_held, most):
            yield partition[start : start + most], nth[start : start + most]
        held = [(partition[len(nth) - num_held :], nth[len(nth) - num_held :])]
    if num_held:
        partition, nth = (np.concatenate(parts) for parts in zip(*held, strict=True))
        whole = num_held // batch_size * batch_size
        for some in (slice(whole), slice(whole, None)):
            if len(nth[some]):
                yield partition[some], nth[some]


def _near(host: np.ndarray, host_of_rank: np.ndarray, rank: int, num_hosts: int) -> np.ndarray:
    """One rank's rows of some global batches.

    Parameters
    ----------
    host
        int64 ``(num_batches, n)``: where each row of each batch lies.
    host_of_rank, rank, num_hosts
        The host of each rank, which rank, and how many hosts there are.

    Returns
    -------
    numpy.ndarray
        int64: positions in ``host.ravel()``, ascending, as many of each batch as the rank takes.
    """
    num_batches, num_rows = host.shape
    home = host_of_rank[rank]
    sizes = np.diff(np.arange(len(host_of_rank) + 1) * num_rows // len(host_of_rank))
    demand = np.bincount(host_of_rank, sizes, num_hosts).astype(np.int64)
    before = sizes[:rank][host_of_rank[:rank] == home].sum()
    part = np.array([[before], [before + sizes[rank]]])  # of what the ranks of this host take
    queue = host + num_hosts * np.arange(num_batches)[:, None]  # one for each batch and host
    lying = np.bincount(queue.ravel(), minlength=num_batches * num_hosts).reshape(num_batches, num_hosts)
    served = np.minimum(lying, demand)
    here = part * served[:, home] // max(1, demand[home])
    local = _picked(np.flatnonzero(host == home), lying[:, home], *here)
    there = (demand - served)[:, :home].sum(axis=1) + part - here  # of what all ranks lack
    if (there[0] == there[1]).all():
        return local
    spare = np.where(lying > demand, lying, 0).ravel()
    over = np.flatnonzero(spare[queue])
    queued = over[np.argsort(queue.ravel()[over].astype(np.min_scalar_type(queue.max())), kind="stable")]
    given = _picked(queued, spare, served.ravel(), spare)
    return np.sort(np.concatenate([local, _picked(given, (lying - served).sum(axis=1), *there)]))


def _picked(values: np.ndarray, counts: np.ndarray, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Of values that come in groups of ``counts``, those numbered ``first`` to ``stop`` (excluded) in their group."""
    nth = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return values[(nth >= np.repeat(first, counts)) & (nth < np.repeat(stop, counts))]
