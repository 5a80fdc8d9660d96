"""One rank's share of each global batch: rows that lie on its own host as far as there are such."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from dask_train.data.plan import WINDOW_ROWS, EpochPlan, Rows


@dataclass(frozen=True, kw_only=True)
class Shares:
    """One rank's rows of some global batches that follow each other, in the order that they have there.

    Batches come by the many: what is done for each alone takes longer than the rows of a small one.

    Attributes
    ----------
    partition, row
        int64 ``(num_batches * share_rows,)``: of each row its partition, and its number there.
    num_batches
        How many batches these are of; the length of this.
    share_rows, global_rows
        Rows of each share, and of each global batch over all ranks.
    num_ranks
        How many ranks share the batches.
    groups
        int64 ``(num_batches, 2)``: the plan's groups that the first and the last row of each global batch are in.
    """

    partition: np.ndarray = field(repr=False)
    row: np.ndarray = field(repr=False)
    num_batches: int
    share_rows: int
    global_rows: int
    num_ranks: int
    groups: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, batches: slice) -> Shares:
        """Return the rows of some of the batches; no copies."""
        first, stop, _ = batches.indices(self.num_batches)
        its = slice(first * self.share_rows, stop * self.share_rows)
        return replace(
            self,
            partition=self.partition[its],
            row=self.row[its],
            num_batches=max(0, stop - first),
            groups=self.groups[first:stop],
        )

    @property
    def span(self) -> tuple[int, int]:
        """Return the first and the last group that the global batches reach into: the same for all ranks."""
        return int(self.groups[0, 0]), int(self.groups[-1, 1])


def block_of(rank: int, size: int, num_shares: int) -> range:
    """Return which of so many shares of each batch one of ``size`` ranks has: neighbours, in the order of the ranks."""
    return range(rank * num_shares // size, (rank + 1) * num_shares // size)


def shares(
    plan: EpochPlan,
    *,
    batch_size: int,
    rank: int,
    size: int,
    num_shares: int = 0,
    owner: np.ndarray | None = None,
    host_of_rank: np.ndarray | None = None,
    first: int = 0,
) -> Iterator[Shares]:
    """Yield one rank's rows of the global batches of an epoch; no batch continues into the next epoch.

    Parameters
    ----------
    plan
        The order of the epoch.
    batch_size
        Rows of a global batch; the last one may have fewer.
    rank, size
        Which of how many ranks.
    num_shares
        Number of shares that each batch is cut into, whatever the number of ranks: share s of n rows has those from
        ``s * n // num_shares`` on. A rank has the shares of its :func:`block_of`, wherever their rows lie. Default: 0,
        one per rank.
    owner, host_of_rank
        int64 ``(num_partitions,)`` and ``(size,)``: the host that holds each partition, and the one of each rank;
        without them, and on a single host, each global batch is cut in the order that it has.
    first
        The batch to begin with.

    Yields
    ------
    Shares
        Of as many batches as are worked out at once; a last batch that is smaller comes alone. A share has of n rows
        ``(rank + 1) * n // size - rank * n // size``: one is empty only where n is less than the ranks. All ranks'
        shares are the batch, each row once.

    Notes
    -----
    Rows of a batch are first shared among the ranks of the host on which they lie, up to the size of their shares and
    in equal parts. What is left fills the shares of ranks that still lack rows. Both go host by host, so that a rank
    fetches rows from few hosts.
    """
    assert (owner is None) == (host_of_rank is None)
    num_hosts, parts = 0, num_shares or size
    block = block_of(rank, size, parts)
    if owner is not None and host_of_rank is not None and not num_shares:
        assert len(host_of_rank) == size
        assert min(owner.min(initial=0), host_of_rank.min()) >= 0
        num_hosts = 1 + int(max(owner.max(initial=0), host_of_rank.max()))
    num_batches = max(1, WINDOW_ROWS // max(batch_size, num_hosts))
    for partition, nth in _windows(plan, batch_size, first, num_batches):
        global_rows = min(batch_size, len(nth))
        begin, end = (part * global_rows // parts for part in (block.start, block.stop))
        if num_hosts > 1 and owner is not None and host_of_rank is not None:
            taken = _near(owner[partition].reshape(-1, global_rows), host_of_rank, rank, num_hosts)
            mine, its = partition[taken], nth[taken]
        else:
            mine, its = (array.reshape(-1, global_rows)[:, begin:end].ravel() for array in (partition, nth))
        yield Shares(
            partition=mine,
            row=plan.rows(mine, its),
            num_batches=len(nth) // global_rows,
            share_rows=end - begin,
            global_rows=global_rows,
            num_ranks=size,
            groups=plan.group_of_partition[partition.reshape(-1, global_rows)[:, [0, -1]]],
        )


def _windows(plan: EpochPlan, batch_size: int, first: int, num_batches: int) -> Iterator[Rows]:
    """Yield the order from batch ``first`` on, in pieces of whole batches; the last may be a part of one."""
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
    """Return one rank's rows of some global batches.

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
    surplus = _picked(queued, spare, served.ravel(), spare)
    return np.sort(np.concatenate([local, _picked(surplus, (lying - served).sum(axis=1), *there)]))


def _picked(values: np.ndarray, counts: np.ndarray, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Pick the values from ``first`` to ``stop`` (excluded) in each of their groups of ``counts``."""
    nth = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return values[(nth >= np.repeat(first, counts)) & (nth < np.repeat(stop, counts))]
