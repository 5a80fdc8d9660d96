"""A process that another has forked for this one, as its guard tells of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest

from dask_train.process import forked as forked_module
from dask_train.process.forked import Forked

# Stands for a template: forks a process that starts another one, waits for a byte, and ends as it says.
TEMPLATE = """
import os, subprocess, sys
from dask_train.process.guard import fork_guarded
end, asking, owner = map(int, sys.argv[1:])
if not fork_guarded(end, os.pidfd_open(owner)):
    os._exit(0)
helper = subprocess.Popen(["sleep", "1000"])
os.write(asking, f"{os.getpid()} {os.getppid()} {helper.pid}".encode())
os._exit(int(os.read(asking, 1) or b"0"))
"""


class Guarded:
    """A fork of a template that has ended, and this process's ends of its sockets."""

    def __init__(self, owner: int | None = None) -> None:
        self.asking, asking = socket.socketpair()
        self.end, end = socket.socketpair()
        with asking, end:
            numbers = (end.fileno(), asking.fileno())
            command = [sys.executable, "-c", TEMPLATE, *map(str, (*numbers, owner or os.getpid()))]
            subprocess.run(command, pass_fds=numbers, check=True, timeout=60)
        self.asking.settimeout(20)
        self.pid, self.guard, self.helper = map(int, self.asking.recv(64).split())

    @property
    def is_gone(self) -> bool:
        """Whether all of it is: the fork, its guard, and what the fork has started."""
        return not any(map(psutil.pid_exists, (self.pid, self.guard, self.helper)))

    def close(self) -> None:
        for pid in (self.guard, self.pid, self.helper):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        self.asking.close()
        self.end.close()


@pytest.fixture
def guarded(no_leaks) -> Iterator[Guarded]:
    with no_leaks():
        made = Guarded()
        yield made
        made.close()


def test_its_end_is_told(guarded, wait_for):
    forked = Forked(guarded.pid, guarded.end)
    assert forked.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.01)
    guarded.asking.send(b"7")
    wait_for(lambda: psutil.Process(guarded.pid).status() == psutil.STATUS_ZOMBIE, "its number is kept")
    assert forked.wait(60) == forked.poll() == forked.returncode == forked.wait() == 7
    wait_for(lambda: guarded.is_gone, "all of it is gone")


def test_a_signal_is_a_negative_number(guarded):
    forked = Forked(guarded.pid, guarded.end)
    os.kill(guarded.pid, signal.SIGTERM)
    assert forked.wait(60) == -signal.SIGTERM


def test_several_threads_may_wait(guarded, in_threads):
    forked = Forked(guarded.pid, guarded.end)
    waiting = threading.Barrier(4)

    def wait():
        waiting.wait(60)
        return forked.wait(60)

    def end():
        waiting.wait(60)
        os.kill(guarded.pid, signal.SIGTERM)
        return -signal.SIGTERM

    assert in_threads(wait, wait, wait, end) == [-signal.SIGTERM] * 4


def test_it_dies_with_its_guard(guarded, wait_for):
    forked = Forked(guarded.pid, guarded.end)
    os.kill(guarded.guard, signal.SIGKILL)
    assert forked.wait(60) == -signal.SIGKILL
    wait_for(lambda: not psutil.pid_exists(guarded.pid), "it is gone")


def test_a_guard_that_is_stopped_is_not_waited_for(guarded, wait_for, monkeypatch):
    monkeypatch.setattr(forked_module, "TOLD_S", 0.1)
    forked = Forked(guarded.pid, guarded.end)
    os.kill(guarded.guard, signal.SIGSTOP)
    guarded.asking.send(b"7")
    assert forked.wait() == -signal.SIGKILL
    wait_for(lambda: guarded.is_gone, "the kernel has continued its guard, which ends all of it")


@pytest.mark.parametrize("stopped", [False, True])
def test_all_end_with_the_socket(guarded, wait_for, stopped):
    if stopped:
        os.kill(guarded.guard, signal.SIGSTOP)
    guarded.end.close()
    wait_for(lambda: guarded.is_gone, "all of it is gone")


def test_all_end_with_their_dask_worker_though_another_process_has_its_socket(no_leaks, wait_for):
    with no_leaks(), subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        made = Guarded(owner.pid)  # the socket is this process's
        assert psutil.pid_exists(made.guard)
        owner.kill()
        wait_for(lambda: made.is_gone, "all of it is gone")
        made.close()


def test_no_process():
    here, there = socket.socketpair()
    with here, there, pytest.raises(OSError, match="No such process"):
        Forked(1 << 22, here)
