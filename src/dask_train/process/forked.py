"""A process that a template has forked for this one; its guard tells how it ended: :mod:`dask_train.process.guard`."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from contextlib import suppress

# How long after its end its guard is given to tell how it was; it takes a millisecond, unless the guard is stopped.
TOLD_S = 2.0
# A status in digits.
_STATUS_BYTES = 16


class Forked:
    """A process that another has forked for this one; see :class:`~dask_train.process.launch.Process`.

    Parameters
    ----------
    pid
        The process, which can't have ended yet.
    end
        This end of the socket with its guard; it is closed when the end of the process is known.

    Raises
    ------
    OSError
        There is no such process.
    """

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid, self._end = pid, end
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self._gone = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        with self._lock:
            if self.returncode is None:
                try:
                    said = self._end.recv(_STATUS_BYTES, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return None
                except ConnectionError:
                    said = b""
                self._close(int(said or -signal.SIGKILL))  # it dies with its guard
            return self.returncode

    def _close(self, status: int) -> None:
        self.returncode = status
        with suppress(OSError):  # its guard is gone
            self._end.send(b"1")
        self._end.close()
        os.close(self._gone)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.poll() is None:
            with self._lock:
                copies = [] if self._end.fileno() == -1 else [os.dup(self._end.fileno()), os.dup(self._gone)]
            try:
                is_gone = not copies or _is_readable(copies, timeout)
                if copies and is_gone:
                    _is_readable(copies[:1], TOLD_S)
            finally:
                for copy in copies:  # another thread may have closed ours
                    os.close(copy)
            if self.poll() is None:
                if not is_gone:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
                with self._lock:
                    if self.returncode is None:  # its guard is stopped; the kernel kills it with its socket
                        self._close(-signal.SIGKILL)
        assert self.returncode is not None
        return self.returncode


def _is_readable(descriptors: list[int], timeout: float | None) -> bool:
    """Wait until one of them is."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout is None else timeout * 1000))
