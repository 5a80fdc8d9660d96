"""Ports that are held, and how they are told."""

from __future__ import annotations

import socket

import pytest

from dask_train.frameworks.ports import address_of, hold_port


@pytest.mark.parametrize(("host", "told"), [("10.0.0.1", "10.0.0.1"), ("node-1", "node-1"), ("fe80::1", "[fe80::1]")])
def test_addresses(host, told):
    with hold_port() as holder:
        assert address_of(host, holder) == f"{told}:{holder.getsockname()[1]}"


def test_a_port_is_for_a_server_that_shares_it_and_for_no_other():
    with hold_port() as holder, hold_port() as another:
        port = holder.getsockname()[1]
        assert port != another.getsockname()[1]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_port_is_held_once_more():
    with hold_port() as holder:
        port = holder.getsockname()[1]
        again = hold_port(port)
    with again, socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
