"""A child that a template has forked, adopted by this process: waited for like one that was started here.

A process whose parent ends gets the nearest ancestor as its parent that is a *child subreaper* (prctl(2)). A template
forks twice, and the process in between ends; so the new process becomes a child of the Dask worker, if that is a
subreaper just then. Its exit status, its parent-death signal and ``wait`` are those of any child, and the template may
end before it.
"""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # prctl(2)

_lock = threading.Lock()
_num_adopting = 0
_was_adopting = 0


@contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of descendants whose parent ends while this lasts.

    No longer than that, because orphans of other programs in this process tree would be left for us to wait for.

    Raises
    ------
    OSError
        The system has no such thing.
    """
    global _num_adopting, _was_adopting  # noqa: PLW0603 - an attribute of the process
    libc = ctypes.CDLL(None, use_errno=True)
    with _lock:
        if not _num_adopting:
            found = ctypes.c_int()
            if libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0):
                raise OSError(ctypes.get_errno(), "PR_GET_CHILD_SUBREAPER")
            _was_adopting = found.value
            if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
        _num_adopting += 1
    try:
        yield
    finally:
        with _lock:
            _num_adopting -= 1
            if not _num_adopting:
                libc.prctl(_PR_SET_CHILD_SUBREAPER, _was_adopting, 0, 0, 0)


class Forked:
    """A child of this process that another has forked; see :class:`~dask_train.process.launch.Process`.

    Raises
    ------
    ChildProcessError
        It is no child of this process.
    """

    def __init__(self, pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        with self._lock:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # other code has waited for all children of this process
                    pid, status = self.pid, 0
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if (status := self.poll()) is not None:
            return status
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:  # another thread has waited for it
            descriptor = -1
        if descriptor != -1:
            try:
                poller = select.poll()
                poller.register(descriptor, select.POLLIN)
                poller.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(descriptor)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status
