"""Lines between processes of different hosts: messages and arrays over TCP."""

from __future__ import annotations

import mmap
import socket
from collections.abc import Iterable
from typing import Any

from dask_train.transport.array_layout import ArraySlot, bytes_of
from dask_train.transport.channels import Channel, fill
from dask_train.transport.connections import Credentials, connected, greeted, listening
from dask_train.transport.reception import Reception


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
