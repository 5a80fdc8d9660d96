"""Who comes to a socket is greeted side by side; who says nothing holds up nobody."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import pytest

from dask_train.errors import LaunchError
from dask_train.transport import reception as reception_module
from dask_train.transport.reception import Reception, ended_after


class Guest:
    """One that has said its name."""

    def __init__(self, connection: socket.socket, name: bytes) -> None:
        self.connection, self.name = connection, name

    def close(self) -> None:
        self.connection.close()


def greet(connection: socket.socket) -> Guest:
    with ended_after(connection, 20.0):
        name = connection.recv(1)
    if not name:
        raise EOFError
    if name == b"?":
        raise LaunchError("A stranger.")
    return Guest(connection, name)


@pytest.fixture
def place(no_leaks):
    """A reception, and a way to come to it."""
    with no_leaks(), ExitStack() as stack:
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        received = Reception(listener, greet)

        def come(says: bytes = b"") -> socket.socket:
            connection = stack.enter_context(socket.create_connection(address, 20.0))
            connection.sendall(says)
            return connection

        yield received, come
        received.close()


def test_guests_come_in_whoever_else_is_there(place):
    received, come = place
    silent = come()
    come(b"?")
    come(b"a")
    with received.next(20.0).connection as first:
        assert first.getpeername()
    silent.sendall(b"b")
    guest = received.next(20.0)
    assert guest.name == b"b"
    guest.close()


def test_who_is_not_let_in_is_hung_up_on(place):
    _, come = place
    assert come(b"?").recv(1) == b""


def test_nobody_comes_in_time(place):
    received, _ = place
    with pytest.raises(TimeoutError, match=r"nobody was let in within 0\.01 s"):
        received.next(0.01)


def test_the_oldest_is_given_up_where_there_are_too_many(place, monkeypatch):
    monkeypatch.setattr(reception_module, "_MOST", 2)
    received, come = place
    oldest = come()
    others = [come() for _ in range(2)]
    assert oldest.recv(1) == b"", "it is hung up on"
    others[1].sendall(b"c")
    guest = received.next(20.0)
    assert guest.name == b"c"
    guest.close()


def test_closing_ends_a_wait_and_greetings(place, in_threads, wait_for):
    received, come = place
    silent, waits = come(), threading.Event()
    wait_for(lambda: received._greeted, "it is accepted: the kernel resets others")

    def wait():
        waits.set()
        with pytest.raises(OSError, match="nobody is received any more"):
            received.next()

    def close():
        assert waits.wait(60)
        received.close()
        return silent.recv(1)

    assert in_threads(wait, close)[1] == b""


def test_guests_that_nobody_has_asked_for_are_hung_up_on(place, wait_for):
    received, come = place
    guest = come(b"a")
    wait_for(lambda: not received._guests.empty(), "it is let in")
    received.close()
    assert guest.recv(1) == b""


def test_a_limit_ends_what_drips(no_leaks):
    with no_leaks():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with ended_after(ours, 0.05):
                assert ours.recv(1) == b"", "it is over"
            with ended_after(theirs, 60.0):
                pass


def test_who_asks_again_after_it_was_closed_does_not_wait(place):
    received, come = place
    come(b"a")
    received.close()
    for _ in range(2):
        with pytest.raises(OSError, match="nobody is received any more"):
            received.next(20.0)
    received.close()  # again does no harm
