"""A role process dies with its Dask worker, whatever it is doing, and can always be looked into."""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import os
import select
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)
_F_SETSIG = 10  # fcntl(2); Python's fcntl lacks it

# Written to by faulthandler in C, without the GIL. A real-time signal, since programs use SIGUSR1 and SIGUSR2.
STACKS_SIGNAL = signal.SIGRTMIN + 7


def die_with(parent_pid: int, lifeline: int) -> None:
    """Let the kernel kill this process when its parent, or the writing end of a pipe, is gone.

    Two ways, because each has a hole: the parent-death signal is lost when the parent dies before it is asked for, and
    it comes with the end of the *thread* that forked; a pipe stays open where somebody has forked the parent. Neither
    needs the GIL, which user code may hold in C for minutes.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent_pid or select.select([lifeline], [], [], 0)[0]:
        os._exit(1)


def write_stacks_on_signal(descriptor: int) -> None:
    """On :data:`STACKS_SIGNAL`, write the Python stacks of all threads to a file descriptor."""
    faulthandler.register(STACKS_SIGNAL, file=descriptor, all_threads=True, chain=False)
