"""A data set opened outside of a run: mapped where it lies on this host, copied once from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import psutil
from distributed import CancelledError, Future
from distributed.comm import get_address_host

from dask_train.cluster.peer import Peer
from dask_train.data.rows import Rows
from dask_train.data.table import Table
from dask_train.errors import DataError
from dask_train.shared_data.segments import SharedSegments
from dask_train.worker.holding import Holding


async def open_rows(
    peer: Peer, what: str, segments: SharedSegments, partitions: Iterable[int], data_timeout_s: float
) -> Rows:
    """Map partitions of a data set into this process; on the client's event loop.

    Parameters
    ----------
    peer
        The client.
    what
        How errors call it.
    segments
        The data set.
    partitions
        Their numbers.
    data_timeout_s
        How long none may come, in seconds: Dask may be computing lost ones again.

    Returns
    -------
    Rows
        What lies on this host is mapped and not copied; Dask workers' memory that is mapped is not given out again.
        What lies elsewhere is copied once into this process's own shared memory, and stays with the rows.

    Raises
    ------
    DataError
        A partition can't be had any more, or none came in time.
    """
    nowhere = np.zeros(len(segments.lengths), np.int64)
    table = Table(schema=segments.schema, lengths=segments.lengths, owner=nowhere, host_of_rank=nowhere[:1])
    around = _AroundOpened(peer, segments)
    holding = Holding(table, dict(enumerate(segments.keys)), around, is_near=around.is_near)
    try:
        await holding.hold(partitions, lambda: None, data_timeout_s)
        return Rows(segments.schema, segments.lengths, holding.held, holding.descriptors)
    except DataError as error:
        raise DataError(f"{what} can't be opened: {error}") from error
    finally:
        holding.close()


class _AroundOpened:
    """A client's way to Dask workers; see :class:`~dask_train.worker.holding.Neighbours`."""

    address = ""  # a client has no results of its own

    def __init__(self, peer: Peer, segments: SharedSegments) -> None:
        self._peer = peer
        self._futures: dict[Any, Future] = dict(zip(segments.keys, segments.futures, strict=True))
        self._here = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}

    def is_near(self, address: str) -> bool:
        """Return whether a Dask worker's address is one of this host's.

        What is not can't be opened, or is another host's.
        """
        return address.startswith("inproc://") or get_address_host(address) in self._here

    async def where(self, keys: list[Any], wait_s: float = 0.0) -> dict[str, Any]:
        return await self._peer.ask("train_run_who_has", keys=keys, timeout_s=wait_s)

    async def fetch(self, key: Any, addresses: list[str]) -> Any:  # noqa: ARG002 - Dask knows them itself
        future = self._futures[key]
        try:
            (segment,) = await Peer(future.client).gather([future])
        except CancelledError as error:
            raise DataError(f"A partition was released or lost: {error}.") from error
        return segment

    async def ask(self, address: str, function: Callable[..., Any], *args: Any) -> Any:
        answers = await self._peer.on_workers(function, *args, workers=[address])
        return answers[address]
