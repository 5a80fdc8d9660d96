"""Greet connections to a socket: concurrently, each within a time limit, and up to a fixed number at a time.

Any process may connect to a socket that listens, and then send nothing, or a byte at a time. That does not block
others.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from dask_train.errors import LaunchError

# With this many greetings in hand, besides those of guests that are expected, the oldest is given up for a new one.
_MOST = 64
# What accept(2) says where this process, or the host, has no room for another connection.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S = 0.1
# And of a connection that was gone before it was accepted.
GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)


class _Closes(Protocol):
    def close(self) -> None:
        """Hang up."""


_Guest = TypeVar("_Guest", bound=_Closes)


class Reception(Generic[_Guest]):
    """The connections to a socket that are let in.

    Parameters
    ----------
    listener
        It listens; closed with this.
    greet
        Makes a guest of a connection, in a thread of its own and within a limit of its own, see :func:`ended_after`; or
        raises ``LaunchError``, ``EOFError`` or ``OSError``, then the connection is closed, and no one else is informed.
    num_expected
        Number of guests that may come at the same time, and that no others are to keep out. Default: 0.
    """

    def __init__(
        self, listener: socket.socket, greet: Callable[[socket.socket], _Guest], num_expected: int = 0
    ) -> None:
        self._listener, self._greet, self._num_expected = listener, greet, num_expected
        self._guests: queue.SimpleQueue[_Guest | None] = queue.SimpleQueue()
        self._greeted: dict[threading.Thread, socket.socket] = {}  # the oldest first
        self._lock = threading.Lock()
        self._closed = False
        self._accepting = threading.Thread(target=self._accept, name="dask-train-reception", daemon=True)
        self._accepting.start()

    def next(self, timeout_s: float | None = None) -> _Guest:
        """Return the next guest; waits for ever where no time is given, until this is closed.

        Raises
        ------
        TimeoutError
            No guest was let in in time.
        OSError
            This was closed.
        """
        try:
            guest = self._guests.get(timeout=None if timeout_s is None else max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError(f"nobody was let in within {timeout_s:g} s") from None
        if guest is None:
            self._guests.put(None)  # for later calls
            raise OSError(errno.EBADF, "nobody is received any more")
        return guest

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
                self._begin(connection)
            except (OSError, RuntimeError) as error:  # RuntimeError: there can't be another thread
                number = getattr(error, "errno", None)
                if number is not None and number not in (*NO_ROOM, *GONE):
                    return
                if number not in GONE:
                    self._give_up_oldest(1)
                    time.sleep(NO_ROOM_S)

    def _begin(self, connection: socket.socket) -> None:
        self._give_up_oldest(_MOST + self._num_expected)
        thread = threading.Thread(target=self._receive, args=(connection,), name="dask-train-greeting", daemon=True)
        try:
            with self._lock:
                self._greeted[thread] = connection.dup()  # TLS takes the connection away from its first owner
            thread.start()
        except (OSError, RuntimeError):
            self._end(thread)
            connection.close()
            raise

    def _receive(self, connection: socket.socket) -> None:
        try:
            guest = self._greet(connection)
            if self._closed:
                guest.close()
            else:
                self._guests.put(guest)
        except (LaunchError, EOFError, OSError):
            connection.close()
        finally:
            self._end(threading.current_thread())

    def _end(self, thread: threading.Thread) -> None:
        with self._lock:
            own = self._greeted.pop(thread, None)
        if own is not None:
            own.close()

    def _give_up_oldest(self, most: int) -> None:
        """If too many greetings are under way, let the oldest fail."""
        with self._lock:
            if len(self._greeted) >= most:
                _shut_down(next(iter(self._greeted.values())))

    def close(self) -> None:
        """Stop listening, and drop guests that were not asked for; a waiting :meth:`next` ends."""
        self._closed = True
        _shut_down(self._listener)
        self._listener.close()
        self._accepting.join()
        with self._lock:
            threads = list(self._greeted)
            for connection in self._greeted.values():
                _shut_down(connection)
        for thread in threads:
            thread.join()
        with contextlib.suppress(queue.Empty):
            while (guest := self._guests.get_nowait()) is not None:
                guest.close()
        self._guests.put(None)


@contextmanager
def ended_after(connection: socket.socket, seconds: float) -> Iterator[None]:
    """While it lasts, a connection is shut down after a time limit, however much it receives."""
    own = connection.dup()
    timer = threading.Timer(seconds, _shut_down, [own])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        own.close()


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
