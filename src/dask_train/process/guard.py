"""A fork of a template, and its guard: the process between them, which tells the Dask worker how the fork has ended.

The kernel gives a process that has lost its parent to one of its ancestors only. A template that several Dask workers
share descends from one of them at most, so its forks can't be children of the Dask workers that need them. Each has a
guard as its parent instead, so it depends on no template either: the fork dies with its guard. When the Dask worker is
gone, the guard kills the fork and the processes that the fork has started, and ends.
"""

from __future__ import annotations

import os
import select
import signal
import warnings
from contextlib import suppress

from dask_train.process.life import continue_at_end, die_with_parent


def fork_guarded(end: int, owner: int) -> bool:
    """Fork a process in a session of its own, with a guard as its parent; True in it.

    Parameters
    ----------
    end
        The guard's end of a socket with the Dask worker. The guard writes there how the fork has ended, and keeps it
        from being waited for until it has an answer. If the Dask worker closes its end before, both end.
    owner
        A pidfd of the Dask worker.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of any second thread
        if os.fork():
            return False
        try:
            os.setsid()  # a Ctrl-C in the terminal is the client's to handle
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # its template ignores it, so no guard becomes a zombie
            guard = os.getpid()
            child = os.fork()
            if child:
                _guard(child, end, owner)
            os.setsid()  # its group is killed with it
            die_with_parent(guard)
            os.close(end)
        except BaseException:  # there was no room for a process
            os._exit(1)
        return True


def _guard(child: int, end: int, owner: int) -> None:
    """Tell how a child has ended, and kill what it leaves behind; never returns."""
    try:
        continue_at_end(end)
        gone = os.pidfd_open(child)
        _close_all_but({0, 1, 2, end, owner, gone})
        # A Dask worker that has forked is gone before the last copy of its end of the socket is.
        if gone in _first_of(gone, owner, end):
            _tell_status(child, end)
            _first_of(end, owner)
    finally:
        try:
            # Also what it has started, which would outlive it where its Dask worker is gone.
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)  # until then no other process gets its number
        finally:
            os._exit(1)  # and the child dies with it


def _tell_status(child: int, end: int) -> None:
    child_exit = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert child_exit is not None
    status = child_exit.si_status if child_exit.si_code == os.CLD_EXITED else -child_exit.si_status
    os.write(end, str(status).encode())


def _close_all_but(left_open: set[int]) -> None:
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in left_open:
            with suppress(OSError):  # the listing's own
                os.close(number)


def _first_of(*descriptors: int) -> set[int]:
    """Wait until one of them is readable, or its other end closed."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll()}
