"""Lines between processes of different hosts: messages and arrays over TCP."""

from __future__ import annotations

import mmap
import socket
from collections.abc import Iterable
from typing import Any

from dask_train.agreement.layout import Slot, bytes_of
from dask_train.agreement.lines import Line, Listener, fill
from dask_train.agreement.network import Credentials, connected, greeted, listening


class NetworkLine(Line):
    """A line whose arrays travel behind the message that they were put for."""

    def __init__(self, connection: socket.socket, slot: Slot) -> None:
        memory = mmap.mmap(-1, 2 * slot.size_bytes)
        super().__init__(connection, slot.arrays(memory, 0), slot.arrays(memory, 1))
        self._put: set[int] = set()

    def put(self, first: int, values: Iterable[Any]) -> None:
        """See :meth:`Line.put`."""
        listed = list(values)
        super().put(first, listed)
        self._put.update(range(first, first + len(listed)))

    def send(self, message: Any) -> None:
        """See :meth:`Line.send`."""
        places, self._put = sorted(self._put), set()
        super().send((message, places))
        for place in places:
            self.connection.sendall(bytes_of(self.out[place]))

    def receive(self, timeout_s: float | None) -> Any:
        """See :meth:`Line.receive`; the time is that of each piece."""
        message, places = super().receive(timeout_s)
        for place in places:
            fill(self.connection, bytes_of(self.into[place]))
        return message


class NetworkListener(Listener):
    """Where lines of other hosts come from.

    Parameters
    ----------
    address
        ``host:port`` to listen at, as :func:`~dask_train.agreement.network.listening` takes it.
    slot
        The arrays that travel on each line.
    credentials
        Who is answered.

    Raises
    ------
    LaunchError
        It can't listen there.
    """

    def __init__(self, address: str, slot: Slot, credentials: Credentials) -> None:
        super().__init__(listening(address))
        self._slot, self._credentials = slot, credentials

    def answer(self, connection: socket.socket) -> Line:
        """See :meth:`Listener.answer`."""
        return NetworkLine(greeted(connection, self._credentials, listens=True), self._slot)


def dial_over_network(address: str, slot: Slot, credentials: Credentials, timeout_s: float) -> Line:
    """A line to who listens at that address.

    Raises
    ------
    LaunchError
        Nobody does in time, or it does not know the run.
    """
    return NetworkLine(connected(address, credentials, timeout_s), slot)
