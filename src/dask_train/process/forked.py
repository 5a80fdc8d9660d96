"""A process that a template has forked for this one; its guard tells how it ended: :mod:`dask_train.process.guard`."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress

# How long after its end its guard is given to tell how it was; it takes a millisecond, unless the guard is stopped.
TOLD_S = 2.0
# How often a wait for its end looks.
LOOK_S = 0.002
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
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        told_by = math.inf
        while (status := self.poll()) is None:
            now = time.monotonic()
            with self._lock:
                if self.returncode is None and is_readable(self._gone):
                    told_by = min(told_by, now + TOLD_S)
                    if now >= told_by:  # its guard is stopped, and goes with its socket
                        self._close(-signal.SIGKILL)
            if told_by == math.inf and now >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(LOOK_S)  # a wait for a descriptor would need a copy: another thread may close this one
        return status


def is_readable(descriptor: int) -> bool:
    """Return whether a read would not wait: of a pidfd, whether its process is gone."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
