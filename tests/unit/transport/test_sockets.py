"""Unix sockets between processes of a host, over which memory is passed."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time

import pytest

from dask_train.errors import LaunchError
from dask_train.transport import sockets

REFUSAL = LaunchError("Nobody is there.")


@pytest.fixture
def name():
    return secrets.token_hex(8)


def soon():
    return time.monotonic() + 20.0


def test_memory_is_passed(name, in_threads, no_leaks):
    def give():
        connection, _ = listener.accept()
        with connection:
            sockets.pass_memory(connection, memory)

    with no_leaks():
        memory = os.memfd_create("test")
        with sockets.listen(name, 1) as listener:
            _, (connection, passed) = in_threads(give, lambda: sockets.connect(name, soon(), REFUSAL))
        assert passed != memory
        assert os.fstat(passed).st_ino == os.fstat(memory).st_ino
        connection.close()
        os.close(passed)
        os.close(memory)


def test_a_name_is_taken_once(name, no_leaks):
    with no_leaks(), sockets.listen(name, 1), pytest.raises(OSError, match="in use"):
        sockets.listen(name, 1)


def test_nobody_listens(name, no_leaks):
    with no_leaks(), pytest.raises(LaunchError, match="Nobody is there") as refused:
        sockets.connect(name, time.monotonic(), REFUSAL)
    assert isinstance(refused.value.__cause__, OSError)


def test_who_comes_late_is_waited_for(name, in_threads, no_leaks):
    def come():
        time.sleep(3 * sockets.RETRY_S)  # others have knocked by then; if not, this shows nothing, and fails nothing
        with sockets.listen(name, 1) as listener:
            connection, _ = listener.accept()
            with connection:
                sockets.pass_memory(connection, 0)

    with no_leaks():
        (connection, passed), _ = in_threads(lambda: sockets.connect(name, soon(), REFUSAL), come)
        connection.close()
        os.close(passed)


@pytest.mark.parametrize("says", [b"", b"m"])
def test_who_passes_nothing_is_refused(name, says, in_threads, no_leaks):
    def give():
        connection, _ = listener.accept()
        with connection:
            connection.sendall(says)

    def take():
        with pytest.raises(LaunchError, match="Nobody is there"):
            sockets.connect(name, soon(), REFUSAL)

    with no_leaks(), sockets.listen(name, 1) as listener:
        in_threads(give, take)


def test_who_proves_nothing_is_refused(name, no_leaks):
    def prove(connection):
        raise EOFError("gone")

    with no_leaks(), sockets.listen(name, 1), pytest.raises(LaunchError, match="Nobody is there") as refused:
        sockets.connect(name, soon(), REFUSAL, prove)
    assert isinstance(refused.value.__cause__, EOFError)


def test_other_users_are_told_apart(name, monkeypatch, no_leaks):
    with no_leaks(), sockets.listen(name, 1) as listener, socket.socket(socket.AF_UNIX) as guest:
        guest.connect(listener.getsockname())
        connection, _ = listener.accept()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with connection, pytest.raises(LaunchError, match=rf"Process {os.getpid()} of user .* of user 12345"):
            sockets.pass_memory(connection, 0)
        with pytest.raises(LaunchError, match="Let all Dask workers of a host run as one user"):
            sockets.connect(name, soon(), REFUSAL)


def test_where_too_many_wait_already_the_deadline_holds(name, in_threads, no_leaks):
    """A connection that waits for room at who listens waits for as long as that takes nobody in."""

    def knock():
        with pytest.raises(LaunchError, match="Nobody is there"):
            sockets.connect(name, time.monotonic() + 0.05, REFUSAL)

    with no_leaks(), sockets.listen(name, 0) as listener, contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            while True:
                guest = stack.enter_context(socket.socket(socket.AF_UNIX))
                guest.setblocking(False)
                guest.connect(listener.getsockname())
        in_threads(knock, timeout_s=10.0)
