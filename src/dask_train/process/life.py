"""A child process dies with its Dask worker, whatever it is doing, and can always be looked into."""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import os
import select
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)
_F_SETSIG = 10  # fcntl(2); Python's fcntl lacks it

# Written to by faulthandler in C, without the GIL. A real-time signal, since programs use SIGUSR1 and SIGUSR2.
STACKS_SIGNAL = signal.SIGRTMIN + 7


def begin(num_own: int) -> list[int]:
    """Guard this process's life before anything else is done in it: the first thing that every child does.

    Parameters
    ----------
    num_own
        How many descriptors it has besides those that every child has.

    Returns
    -------
    list
        Its end of the socket with its Dask worker, and its own descriptors.
    """
    parent_pid, lifeline, stacks, *others = map(int, sys.argv[-4 - num_own :])
    die_with(parent_pid, lifeline)
    write_stacks_on_signal(stacks)
    return others


def die_with(parent_pid: int, lifeline: int) -> None:
    """Let the kernel kill this process when its parent, or the writing end of a pipe, is gone.

    Two ways, because each has a hole: the parent-death signal is lost when the parent dies before it is asked for, and
    it comes with the end of the *thread* that forked; a pipe stays open if the parent has forked. Neither
    needs the GIL, which user code may hold in C for minutes.
    """
    die_with_end(lifeline)
    die_with_parent(parent_pid)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)


def die_with_end(descriptor: int) -> None:
    """Let the kernel kill this process when the other end of a pipe or socket is closed, also while it is stopped."""
    _get_signal_at_end(descriptor, signal.SIGKILL)


def continue_at_end(descriptor: int) -> None:
    """Let the kernel continue this process, in case it is stopped, when the other end of a socket is closed."""
    _get_signal_at_end(descriptor, signal.SIGCONT)


def _get_signal_at_end(descriptor: int, number: signal.Signals) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, _F_SETSIG, number)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when the thread that forked it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def write_stacks_on_signal(descriptor: int) -> None:
    """On :data:`STACKS_SIGNAL`, write the Python stacks of all threads to a file descriptor."""
    faulthandler.register(STACKS_SIGNAL, file=descriptor, all_threads=True, chain=False)


def writes_stacks(pid: int) -> bool:
    """Return whether a process catches :data:`STACKS_SIGNAL` by now, which ends one that does not."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (STACKS_SIGNAL - 1) & 1)
