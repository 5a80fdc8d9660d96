"""A child that another process has forked, adopted by this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from dask_train.process.forked import Forked, adopting

# Forks a process that waits for a byte and ends as it says, or is killed; tells its number and ends.
MIDDLE = """
import os, sys
if pid := os.fork():
    print(pid, flush=True)
    os._exit(0)
word = sys.stdin.buffer.raw.read(1)
os._exit(int(word or b"0"))
"""


class Orphan:
    """A grandchild whose parent has ended while this process adopted."""

    def __init__(self) -> None:
        with adopting():
            middle = subprocess.Popen([sys.executable, "-c", MIDDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert middle.stdout is not None
            assert middle.stdin is not None
            self.pid = int(middle.stdout.readline())
            self.end = middle.stdin
            middle.wait(60)
            middle.stdout.close()

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):  # it has been waited for
            pass
        self.end.close()


@pytest.fixture
def orphan(no_leaks) -> Iterator[Orphan]:
    with no_leaks():
        made = Orphan()
        yield made
        made.close()


def test_it_is_waited_for_like_any_child(orphan):
    forked = Forked(orphan.pid)
    assert forked.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.01)
    orphan.end.write(b"7")
    orphan.end.flush()
    assert forked.wait(60) == forked.poll() == forked.returncode == forked.wait() == 7


def test_a_signal_is_a_negative_number(orphan):
    forked = Forked(orphan.pid)
    os.kill(orphan.pid, signal.SIGKILL)
    assert forked.wait(60) == -signal.SIGKILL


def test_several_threads_may_wait(orphan, in_threads):
    forked = Forked(orphan.pid)
    waiting = threading.Barrier(4)

    def wait():
        waiting.wait(60)
        return forked.wait(60)

    def end():
        waiting.wait(60)
        os.kill(orphan.pid, signal.SIGTERM)
        return -signal.SIGTERM

    assert in_threads(wait, wait, wait, end) == [-signal.SIGTERM] * 4


def test_one_that_somebody_else_has_waited_for_has_ended(orphan):
    forked = Forked(orphan.pid)
    os.kill(orphan.pid, signal.SIGKILL)
    os.waitpid(orphan.pid, 0)
    assert forked.wait(60) == 0, "nobody knows how"


def test_a_stranger_is_no_child():
    with pytest.raises(ChildProcessError):
        Forked(os.getppid())


def is_adopting():
    import ctypes

    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


def test_this_process_adopts_no_longer_than_it_has_to():
    assert not is_adopting(), "also after the tests before this one"
    with adopting():
        with adopting():
            assert is_adopting()
        assert is_adopting(), "another one still does"
    assert not is_adopting()
