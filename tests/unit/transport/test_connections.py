"""Connections between hosts: both ends know the run, and have the cluster's certificates where it has some."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.ports import hold_port
from dask_train.transport.connections import Credentials, connected, greeted, listening

KNOWN, STRANGER = Credentials(key=b"run"), Credentials(key=b"another")


@pytest.fixture
def address():
    with hold_port() as port:
        yield f"127.0.0.1:{port.getsockname()[1]}"


def ended(function):
    """What it raises, or None."""
    try:
        function().close()
    except Exception as error:
        return error
    return None


def met(in_threads, address, inside, outside):
    """What the one that listens, and the one that connects, raise."""
    with listening(address) as listener:

        def receive():
            connection, _ = listener.accept()
            return greeted(connection, inside, listens=True)

        return in_threads(lambda: ended(receive), lambda: ended(lambda: connected(address, outside, 20.0)))


def test_who_knows_the_run_is_let_in(address, in_threads, no_leaks):
    with no_leaks():
        assert met(in_threads, address, KNOWN, KNOWN) == [None, None]


def test_who_does_not_is_not(address, in_threads, no_leaks):
    with no_leaks():
        inside, outside = met(in_threads, address, KNOWN, STRANGER)
    assert isinstance(inside, LaunchError)
    assert "does not know the run" in str(inside)
    assert isinstance(outside, LaunchError)


def test_a_proof_that_is_sent_back_is_none(in_threads, no_leaks):
    """One who does not know the key returns what it is sent: nonce and proof."""

    def echo():
        while data := theirs.recv(1024):
            theirs.sendall(data)

    def prove():
        try:
            with pytest.raises(LaunchError, match="does not know the run"):
                KNOWN.prove(ours, listens=True)
        finally:
            ours.close()

    with no_leaks():
        ours, theirs = socket.socketpair()
        with theirs:
            in_threads(prove, echo)


@pytest.mark.parametrize("as_text", [False, True])
def test_under_tls(address, in_threads, no_leaks, make_certificates, as_text):
    tls, others = ({**made, "key": made["key"]} for made in (make_certificates(), make_certificates()))
    if as_text:
        tls = {name: Path(path).read_text() for name, path in tls.items()}
    known, stranger = Credentials(key=b"run", tls=tls), Credentials(key=b"run", tls=others)
    with no_leaks():
        assert met(in_threads, address, known, known) == [None, None]
        assert all(met(in_threads, address, known, stranger)), "it has certificates of another cluster"
        with listening(address) as listener:

            def receive():
                return greeted(listener.accept()[0], known, listens=True)

            def plain():
                with socket.create_connection(listener.getsockname()) as connection, suppress(ConnectionError):
                    connection.sendall(b"hello, this is no TLS")
                    connection.recv(1024)  # until it is hung up on

            refused, _ = in_threads(lambda: ended(receive), plain)
        assert isinstance(refused, OSError)


def test_names_tell_nothing_without_the_key():
    name = KNOWN.name_of("h:1")
    assert name == KNOWN.name_of("h:1")
    assert name.startswith("h:1/")
    assert len({name, KNOWN.name_of("h:2"), STRANGER.name_of("h:1")}) == 3
    assert "run" not in repr(KNOWN)


def test_where_one_can_not_listen(address, no_leaks):
    with no_leaks(), pytest.raises(LaunchError, match=r"A role can't listen at 192.0.2.1:1: .* --host and an address"):
        listening("192.0.2.1:1")
    with no_leaks(), listening(address) as one:
        assert one.getsockname()[1] == int(address.rpartition(":")[2]), "the port that this process holds"


def test_nobody_is_there(address, no_leaks):
    with (
        no_leaks(),
        pytest.raises(LaunchError, match=f"No connection to the role at {address}: ConnectionRefusedError"),
    ):
        connected(address, KNOWN, 0.0)


def test_addresses_of_ipv6(no_leaks):
    with no_leaks(), listening("[::1]:0") as listener:
        assert listener.family == socket.AF_INET6
