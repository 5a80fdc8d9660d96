"""The way from the client to Vineyard's daemons: tasks of Dask workers on their hosts."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from distributed import Future

from dask_train.cluster.peer import Peer
from dask_train.collections.pickled import carried
from dask_train.config import Deadlines
from dask_train.errors import DataError
from dask_train.shared_data.vineyard import opening

# After how many seconds a call that waits for a Dask worker first looks whether it is still there; later less often.
_LOOK_S = 0.5


class _AllGoneError(Exception):
    """The Dask workers that could have asked a daemon are not in the cluster any more."""

    def in_words(self) -> DataError:
        """Return it as an error for the user."""
        return DataError(str(self), change="Start Dask workers on the hosts of the daemons.")


class Daemons:
    """Vineyard's daemons on the hosts of Dask workers; :meth:`find` gives them.

    Parameters
    ----------
    peer
        The client.
    socket
        Of the daemons; None for what each Dask worker's environment says.
    numbers
        The number of the daemon on the host of each Dask worker, by the worker's address.
    """

    def __init__(self, peer: Peer, socket: str | None, numbers: dict[str, int]) -> None:
        self._peer, self._socket, self.numbers = peer, socket, numbers

    @classmethod
    async def find(cls, peer: Peer, socket: str | None) -> Daemons:
        """Ask each Dask worker for its daemon.

        Raises
        ------
        DataError
            None has one: the error of the first Dask worker that was asked. Or there are no Dask workers.
        """
        try:
            return cls(peer, socket, await _numbers(peer, socket))
        except _AllGoneError as error:
            raise error.in_words() from None

    async def as_of_now(self) -> Daemons:
        """Return the daemons of the Dask workers that there are now; errors are those of :meth:`find`."""
        return await Daemons.find(self._peer, self._socket)

    async def ask(self, instance: int | None, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function of the socket returns in a task of a Dask worker on a daemon's host.

        If that Dask worker dies, another one is asked, also one that comes in its place.

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
                near = [address for address, number in self.numbers.items() if instance in (None, number)]
                if not near:
                    raise _AllGoneError(f"No Dask worker is on the host of Vineyard daemon {instance} any more.")
                return await _on(self._peer, near, function, self._socket, *args)
            except _AllGoneError as error:
                if time.monotonic() > gives_up_at:
                    raise error.in_words() from None
            await asyncio.sleep(_LOOK_S)
            with suppress(_AllGoneError):  # others may come
                self.numbers = await _numbers(self._peer, self._socket)


async def _numbers(peer: Peer, socket: str | None) -> dict[str, int]:
    addresses = list(await peer.workers())
    asking = [_on(peer, [address], opening.instance, socket) for address in addresses]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    numbers = {address: number for address, number in zip(addresses, answers, strict=True) if isinstance(number, int)}
    if not numbers:
        gone = _AllGoneError("The cluster has no Dask workers, and Vineyard's daemons are on their hosts.")
        raise next((error for error in answers if isinstance(error, BaseException)), gone)
    return numbers


async def _on(peer: Peer, addresses: Sequence[str], function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function returns in a task of one of some Dask workers.

    Raises
    ------
    DataError
        It did not come within ``train.progress.timeout``.
    _AllGoneError
        All have left the cluster.
    """
    names = addresses[0] + (f" or {len(addresses) - 1} others" if addresses[1:] else "")
    future = submit(peer, carried(function), *args, workers=list(addresses), allow_other_workers=False)
    timeout_s = Deadlines.from_dask_config().progress_s
    gives_up_at = time.monotonic() + timeout_s
    waiting, look_s = asyncio.ensure_future(future), _LOOK_S
    try:
        # A task for a Dask worker that is gone waits in the scheduler for ever: nothing reports it.
        while not (await asyncio.wait([waiting], timeout=look_s))[0]:
            look_s = min(2 * look_s, peer.poll_s)
            if not set(addresses) & set(await peer.workers()):
                raise _AllGoneError(f"Dask worker {names} left the cluster while it asked its Vineyard daemon.")
            if time.monotonic() > gives_up_at:
                raise DataError(
                    f"Dask worker {names} did not ask its Vineyard daemon within {timeout_s:g} s.",
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
