"""Lines between two processes: messages over a socket; arrays through memory on one host, over TCP between two.

A line through memory has memory of its own, which is gone with its two ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Iterable
from typing import Any

from dask_train.errors import LaunchError
from dask_train.transport import sockets
from dask_train.transport.array_layout import ArraySlot, bytes_of
from dask_train.transport.channels import Channel, fill
from dask_train.transport.connections import GREETING_S, Credentials, connected, greeted, listening
from dask_train.transport.reception import Reception, ended_after

_AGAIN_S = 0.1


class NetworkChannel(Channel):
    """A line whose arrays travel behind the message that they were put for."""

    def __init__(self, connection: socket.socket, slot: ArraySlot) -> None:
        memory = mmap.mmap(-1, 2 * slot.size_bytes)
        super().__init__(connection, slot.arrays(memory, 0), slot.arrays(memory, 1))
        self._put: set[int] = set()

    def put(self, first: int, values: Iterable[Any]) -> None:
        """See :meth:`Channel.put`."""
        listed = list(values)
        super().put(first, listed)
        self._put.update(range(first, first + len(listed)))

    def send(self, message: Any) -> None:
        """See :meth:`Channel.send`."""
        places, self._put = sorted(self._put), set()
        super().send((message, places))
        for place in places:
            self.connection.sendall(bytes_of(self.out[place]))

    def receive(self, timeout_s: float | None) -> Any:
        """See :meth:`Channel.receive`; the time is that of each piece."""
        message, places = super().receive(timeout_s)
        for place in places:
            fill(self.connection, bytes_of(self.into[place]))
        return message


def receive_over_network(address: str, slot: ArraySlot, credentials: Credentials) -> Reception[Channel]:
    """Return where lines of other hosts come from.

    Parameters
    ----------
    address
        ``host:port`` to listen at, as :func:`~dask_train.transport.connections.listening` takes it.
    slot
        The arrays that travel on each line.
    credentials
        The peers that are answered.

    Raises
    ------
    LaunchError
        It can't listen there.
    """

    def greet(connection: socket.socket) -> Channel:
        return NetworkChannel(greeted(connection, credentials, listens=True), slot)

    return Reception(listening(address), greet)


def dial_over_network(address: str, slot: ArraySlot, credentials: Credentials, timeout_s: float) -> Channel:
    """Return a line to the server at that address.

    Raises
    ------
    LaunchError
        No server answers in time, or it does not know the run.
    """
    return NetworkChannel(connected(address, credentials, timeout_s), slot)


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


def receptions(address: str, slot: ArraySlot, credentials: Credentials) -> list[Reception[Channel]]:
    """Return the receptions of lines to an address: of processes on the same host, and of others.

    Raises
    ------
    LaunchError
        The address can't be listened at.
    """
    memory = receive_in_memory(address, slot, credentials)
    try:
        return [memory, receive_over_network(address, slot, credentials)]
    except BaseException:
        memory.close()
        raise


def dial(address: str, slot: ArraySlot, host: str, credentials: Credentials, timeout_s: float) -> Channel:
    """Return a line from a process of ``host`` to the server at ``address``; one host is one as in :class:`Hosts`.

    A process that is rejected tries again: strangers may have taken all places for a while.

    Raises
    ------
    LaunchError
        No peer answers in time, or it is not of this run.
    """
    is_here = address.rpartition(":")[0].strip("[]") == host.strip("[]")
    dial_there = dial_in_memory if is_here else dial_over_network
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return dial_there(address, slot, credentials, max(0.0, deadline - time.monotonic()))
        except LaunchError:
            if time.monotonic() + _AGAIN_S > deadline:
                raise
            time.sleep(_AGAIN_S)
