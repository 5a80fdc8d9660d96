"""An iterator that is worked out ahead of its reader, in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

# Between two looks of a thread whose reader is slow, whether it is still there.
_LOOK_S = 0.5


class Ahead(Generic[T]):
    """Iterates over what a thread has prepared, in order; an error of the thread is raised where it would have been.

    Parameters
    ----------
    prepared
        What to iterate over; it is only used in the thread.
    depth
        How many elements may wait.
    """

    def __init__(self, prepared: Iterator[T], depth: int) -> None:
        self._waiting: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(prepared,), name="dask-train-ahead", daemon=True)
        self._thread.start()

    def _work(self, prepared: Iterator[T]) -> None:
        try:
            for element in prepared:
                if not self._put(element, None):
                    return
            self._put(None, StopIteration())
        except BaseException as error:
            self._put(None, error)

    def _put(self, element: T | None, error: BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._waiting.put((element, error), timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[T]:
        """Iterate over what is fetched ahead."""
        return self

    def __next__(self) -> T:
        """Return the next element; it is prepared by a thread that has deadlines of its own where it waits."""
        element, error = self._waiting.get()
        if error is not None:
            self._waiting.put((None, error))  # a later call gets the same answer
            raise error
        return element  # type: ignore[return-value]

    def close(self) -> None:
        """Let the thread end; what it has prepared is forgotten."""
        self._closed.set()
        while not self._waiting.empty():
            self._waiting.get_nowait()
