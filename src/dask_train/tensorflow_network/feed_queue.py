"""The bounded queue between Dask's event loop, which fills it, and a role's thread, which empties it."""

from __future__ import annotations

import copy
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dask_train.errors import ClosedError, DaskTrainError, StalledError


class FeedQueue:
    """A first-in, first-out queue with a bound, deadlines, and an end that wakes everyone.

    It behaves like ``queue.Queue`` (``get``, ``put``, ``queue.Empty`` and ``queue.Full`` where a timeout is given),
    but no wait is endless, and :meth:`close` ends every wait with an error.

    Parameters
    ----------
    maxsize
        How many items it holds at most.
    default_timeout_s
        Timeout of calls without ``timeout=``, in seconds.
    on_room
        Called, in the thread that made it, whenever there is room for an item again.
    """

    def __init__(self, maxsize: int, default_timeout_s: float, on_room: Callable[[], None] = lambda: None) -> None:
        self.maxsize = maxsize
        self._default_timeout_s = default_timeout_s
        self._on_room = on_room
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._failure: DaskTrainError = ClosedError("The queue was closed with its network.")
        self._closed = False

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item.

        Parameters
        ----------
        block
            Whether to wait for one.
        timeout
            Seconds to wait, then ``queue.Empty``; None waits as long as the queue's patience.

        Raises
        ------
        queue.Empty
            Nothing came within ``timeout``, or nothing is there and ``block`` is false.
        StalledError
            Nothing came within the queue's patience.
        ClosedError, RoleLostError
            The network was closed, or lost a Dask worker. Items that are still there are dropped.
        """
        with self._changed:
            self._wait(lambda: bool(self._items), block, timeout, queue.Empty, "No batch came")
            item = self._items.popleft()
            self._changed.notify_all()
        self._on_room()
        return item

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end; waits for room as :meth:`get` waits for an item.

        Raises
        ------
        queue.Full
            No room within ``timeout``, or at once where ``block`` is false.
        StalledError, ClosedError, RoleLostError
            As :meth:`get`.
        """
        with self._changed:
            self._wait(self.has_room, block, timeout, queue.Full, "Nobody took a batch")
            self._items.append(item)
            self._changed.notify_all()

    def get_nowait(self) -> Any:
        """Get a batch that is there, without waiting: ``get(block=False)``."""
        return self.get(block=False)

    def put_nowait(self, item: Any) -> None:
        """``put(item, block=False)``."""
        self.put(item, block=False)

    def _wait(
        self, met: Callable[[], bool], block: bool, timeout: float | None, too_late: type[Exception], what: str
    ) -> None:
        """Wait under the lock until ``met()``, the deadline, or the end of the queue."""
        timeout_s = self._default_timeout_s if timeout is None else max(0.0, timeout)
        deadline = time.monotonic() + (timeout_s if block else 0.0)
        while not self._closed and not met():
            left_s = deadline - time.monotonic()
            if left_s > 0:
                self._changed.wait(left_s)
            elif not block or timeout is not None:
                raise too_late
            else:
                raise StalledError(
                    f"{what} within {timeout_s:g} s.",
                    "The other side of the queue has ended or hangs.",
                    "Feed more, or raise train.progress.timeout.",
                )
        if self._closed:
            raise copy.copy(self._failure)  # several threads may raise it, and each adds its own traceback

    def has_room(self) -> bool:
        """Return whether one more item fits."""
        return len(self._items) < self.maxsize

    def close(self, failure: DaskTrainError | None = None) -> None:
        """End every wait, now and later, with ``failure`` or :class:`ClosedError`; what waits inside is dropped."""
        with self._changed:
            if not self._closed:
                self._closed, self._failure = True, failure or self._failure
                self._items.clear()
            self._changed.notify_all()
        self._on_room()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    def qsize(self) -> int:
        """Return how many items are inside."""
        return len(self._items)

    def empty(self) -> bool:
        """Return whether nothing is inside."""
        return not self._items

    def full(self) -> bool:
        """Return whether nothing more fits."""
        return not self.has_room()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        """Items as they come, until the queue is closed with its network.

        Raises
        ------
        StalledError, RoleLostError
            As :meth:`get`.
        """
        while True:
            try:
                yield self.get()
            except ClosedError:
                return
