"""Connections of a template with Dask workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from dask_train.process.connections import SECRET_BYTES, Connection
from dask_train.transport.frames import encode


def test_an_order_whose_files_can_not_be_opened_ends_the_connection(
    no_leaks: Callable[..., Any], no_descriptors: Callable[..., Any]
) -> None:
    """Rather than a fork without some of them; the Dask worker starts a process without a template then."""
    secret = b"s" * SECRET_BYTES
    with no_leaks():
        ours, theirs = socket.socketpair()
        connection = Connection(theirs, os.pidfd_open(os.getpid()), secret)
        with ours:
            ours.sendall(secret)
            assert list(connection.read()) == []
            socket.send_fds(ours, [encode("order")], [0, 0])
            with no_descriptors(), pytest.raises(EOFError):
                list(connection.read())
        connection.close()
