"""A local copy of something the scheduler keeps, followed by long polls, for as long as anyone holds the copy."""

from __future__ import annotations

import asyncio
import copy
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable

from dask_train.cluster.peer import Peer
from dask_train.errors import DaskTrainError, StalledError
from dask_train.scheduler.watched import Watched, changed_within


class Mirror(ABC):
    """Base of what follows the scheduler: a board, a feed, a network.

    A subclass says how to ask (:meth:`_poll`) and keeps the answers. Reading the copy costs no message; waiting
    happens on the event loop, with a deadline. Following starts with :meth:`_follow` and ends with :meth:`_end`, when
    the copy is garbage collected, or when the scheduler is gone.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._ended = False
        self._failure: DaskTrainError | None = None
        self._news = Watched()

    @abstractmethod
    async def _poll(self, timeout_s: float) -> None:
        """Ask for what is new, wait up to ``timeout_s`` for it, and keep it."""

    def _follow(self) -> None:
        self._peer.spawn(_Follower(self))

    def _end(self) -> None:
        self._ended = True
        self._peer.loop.add_callback(self._tell)

    def _tell(self) -> None:
        """Wake all waiters; on the event loop only."""
        self._news.wake()

    def _fail(self, failure: DaskTrainError) -> None:
        self._failure = self._failure or failure
        self._tell()

    def _check(self) -> None:
        """Raise what following has failed with, as a new object: many may wait, and each adds its own traceback."""
        if self._failure is not None:
            raise copy.copy(self._failure) from self._failure.__cause__

    async def _until(self, met: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until ``met()``; on the event loop.

        Raises
        ------
        StalledError
            The deadline passed.
        DaskTrainError
            What the copy follows has failed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not met():
            self._check()
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise StalledError(
                    f"{what} did not happen within {timeout_s:g} s.",
                    change="Pass a longer timeout_s, or look at what should have brought it about.",
                )
            await changed_within(self._news.changed, left_s)


class _Follower:
    """The loop behind a mirror. It holds the mirror only while it asks, so that a forgotten copy is not followed."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = weakref.ref(mirror)

    async def __call__(self) -> None:
        while (mirror := self._mirror()) is not None and not mirror._ended and mirror._failure is None:
            try:
                await mirror._poll(mirror._peer.poll_s)
            except DaskTrainError as error:
                mirror._fail(error)
            except Exception as error:  # waiters must learn of our bugs, too
                failure = DaskTrainError(f"{type(mirror).__name__} can't be followed: {type(error).__name__}: {error}.")
                failure.__cause__ = error
                mirror._fail(failure)
            mirror._tell()
            del mirror
