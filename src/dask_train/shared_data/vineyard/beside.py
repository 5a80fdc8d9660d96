"""Ask Vineyard's daemons, each in a task of a Dask worker on its host; another one is asked if that one dies."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Future

from dask_train.cluster.peer import Peer
from dask_train.collections.pickled import carried
from dask_train.config import Deadlines
from dask_train.errors import DataError
from dask_train.shared_data.vineyard import opening

# How often, in seconds, a call that waits for a Dask worker looks whether it is still there.
_LOOK_S = 0.5


class _AllGoneError(Exception):
    """The Dask workers that could have asked a daemon are not in the cluster any more."""

    def in_words(self) -> DataError:
        """Return it as an error for the user."""
        return DataError(str(self), change="Start Dask workers on the hosts of the daemons.")


async def daemons(peer: Peer, socket: str | None) -> dict[str, int]:
    """Return the number of the daemon on the host of each Dask worker, if there is one.

    Raises
    ------
    DataError
        None has; the error of the first is its cause.
    """
    try:
        return await _numbers(peer, socket)
    except _AllGoneError as error:
        raise error.in_words() from None


async def asked(peer: Peer, socket: str | None, instance: int | None, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function of a socket returns in a task of a Dask worker on a daemon's host.

    Where that Dask worker dies, another one is asked, also one that comes in its place.

    Parameters
    ----------
    instance
        The daemon's number; None for any daemon.

    Raises
    ------
    DataError
        None did within ``train.progress.timeout``.
    """
    gives_up_at = time.monotonic() + Deadlines.from_dask_config().progress_s
    while True:
        try:
            numbers = await _numbers(peer, socket)
            near = [address for address, number in numbers.items() if instance in (None, number)]
            if not near:
                raise _AllGoneError(f"No Dask worker is beside the Vineyard daemon of instance {instance} any more.")
            return await _on(peer, near, function, socket, *args)
        except _AllGoneError as error:
            if time.monotonic() > gives_up_at:
                raise error.in_words() from None
        await asyncio.sleep(_LOOK_S)


async def _numbers(peer: Peer, socket: str | None) -> dict[str, int]:
    addresses = list(await peer.workers())
    asking = [_on(peer, [address], opening.instance, socket) for address in addresses]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    told = dict(zip(addresses, answers, strict=True))
    beside = {address: number for address, number in told.items() if isinstance(number, int)}
    if not beside:
        gone = _AllGoneError("The cluster has no Dask workers, and Vineyard's daemons are beside these.")
        raise next((error for error in answers if isinstance(error, BaseException)), gone)
    return beside


async def _on(peer: Peer, addresses: Sequence[str], function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function returns in a task of one of some Dask workers.

    Raises
    ------
    DataError
        It did not come within ``train.progress.timeout``.
    _AllGoneError
        All have left the cluster.
    """
    names = addresses[0] + (f" or {len(addresses) - 1} more beside the same daemon" if addresses[1:] else "")
    future = submit(peer, carried(function), *args, workers=list(addresses), allow_other_workers=False)
    patience_s = Deadlines.from_dask_config().progress_s
    gives_up_at = time.monotonic() + patience_s
    waiting = asyncio.ensure_future(future)
    try:
        # A task for a Dask worker that is gone waits in the scheduler for ever: nothing reports it.
        while not (await asyncio.wait([waiting], timeout=_LOOK_S))[0]:
            if not set(addresses) & set(await peer.workers()):
                raise _AllGoneError(f"Dask worker {names} left the cluster while it asked its Vineyard daemon.")
            if time.monotonic() > gives_up_at:
                raise DataError(
                    f"Dask worker {names} did not ask its Vineyard daemon within {patience_s:g} s.",
                    "It is busy with other tasks, or the daemon hangs.",
                    "Look at the Dask dashboard, or raise train.progress.timeout.",
                )
        return waiting.result()
    finally:
        waiting.cancel()
        future.release()


def submit(peer: Peer, task: Callable[..., Any], *args: Any, **where: Any) -> Future:
    """Submit a task of its own key; ``where`` as :func:`~dask_train.cluster.submitted.preferring` gives it."""
    key = f"dask-train-vineyard-{uuid.uuid4().hex}"
    return peer.dask_end.submit(task, *args, key=key, pure=False, **where)
