"""Lines between two processes of a host: messages over a socket, arrays in memory that both map.

Each line has memory of its own, which is gone with its two ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import time

from dask_train.errors import LaunchError
from dask_train.transport import sockets
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.channels import Channel
from dask_train.transport.connections import GREETING_S, Credentials
from dask_train.transport.reception import Reception, ended_after


def receive_in_memory(address: str, slot: ArraySlot, credentials: Credentials) -> Reception[Channel]:
    """Return where lines of this host come from.

    Parameters
    ----------
    address
        ``host:port`` that this process alone has; gives the socket its name.
    slot
        The arrays that travel on each line.
    credentials
        The peers that are answered.
    """

    def greet(connection: socket.socket) -> Channel:
        with ended_after(connection, GREETING_S):
            credentials.prove(connection, listens=True)
            descriptor = os.memfd_create("dask-train-line", os.MFD_CLOEXEC)
            try:
                os.ftruncate(descriptor, 2 * slot.size_bytes)
                memory = mmap.mmap(descriptor, 2 * slot.size_bytes)
                sockets.pass_memory(connection, descriptor)
            finally:
                os.close(descriptor)
        return Channel(connection, slot.arrays(memory, 1), slot.arrays(memory, 0))

    return Reception(sockets.listen(_name(address, credentials), 64), greet)


def dial_in_memory(address: str, slot: ArraySlot, credentials: Credentials, timeout_s: float) -> Channel:
    """Return a line to the server under that address on this host.

    Raises
    ------
    LaunchError
        No server answers in time, or it is of another user or another run.
    """
    refusal = LaunchError(
        f"Nobody answers as {address} on this host.",
        "That process has ended, or is in a container that shares this host's address, but not its network.",
        "See its output with run.logs('ps').",
    )

    def prove(connection: socket.socket) -> None:
        with ended_after(connection, GREETING_S):
            credentials.prove(connection, listens=False)

    name = _name(address, credentials)
    connection, descriptor = sockets.connect(name, time.monotonic() + timeout_s, refusal, prove)
    try:
        memory = mmap.mmap(descriptor, 2 * slot.size_bytes)
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return Channel(connection, slot.arrays(memory, 0), slot.arrays(memory, 1))


def _name(address: str, credentials: Credentials) -> str:
    return f"line/{credentials.name_of(address)}"
