"""Rows in a client's memory, which tasks on Dask workers open from there: served over connections, or relayed.

A task has only a :class:`Ticket`, in which there are plain values: a local cluster's scheduler may be in the client's
process, and may keep tasks in its log, so rows must not hang on anything that is in a task.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from secrets import token_bytes, token_hex
from typing import Any, NamedTuple

from distributed import Client, Future, get_worker
from distributed.comm import get_address_host

from dask_train.cluster.certificates import certificates
from dask_train.cluster.relayed import ask, relay
from dask_train.collections.rows_apart import opened_task
from dask_train.errors import LaunchError
from dask_train.transport.connections import Credentials
from dask_train.transport.served_values import ServedValues, ValueReader, unpacked

# How long a Dask worker tries to reach the client before it asks by way of the scheduler.
REACHED_S = 3.0
# How long it takes that for granted of the client's host.
UNREACHABLE_S = 60.0


class Ticket(NamedTuple):
    """What a task needs to know to open rows.

    Attributes
    ----------
    name
        Name of the :class:`HeldRows`, which can't be guessed.
    client
        The id of the client.
    address
        Where that serves them, ``host:port``.
    key
        What a request has to contain.
    """

    name: str
    client: str
    address: str
    key: bytes


class HeldRows:
    """Rows that this process keeps for as long as a client's futures are there that are made of them.

    Parameters
    ----------
    client
        Whose Dask workers may open them.
    rows
        Arrays and frames, numbered by their places.
    """

    def __init__(self, client: Client, rows: Sequence[Any]) -> None:
        self.rows, key = list(rows), token_bytes(32)
        credentials = Credentials(key=key, tls=certificates(client, "client"))
        server = ServedValues(self.rows, _host_of(client), credentials)
        self.ticket = Ticket(token_hex(16), client.id, server.address, key)
        weakref.finalize(self, server.stop)
        _held[self.ticket.name] = self
        relay(client, _find)

    def keep(self, futures: Iterable[Future]) -> None:
        """Stay until the last of these futures of the client is gone."""
        for future in futures:
            future.held_rows = self


# By name; those of this process.
_held: weakref.WeakValueDictionary[str, HeldRows] = weakref.WeakValueDictionary()
# In a Dask worker: hosts of clients that it can't reach, and until when it takes that for granted.
_unreachable: dict[str, float] = {}


def _find(name: str, number: int) -> Any:
    entry = _held.get(name)
    return None if entry is None else entry.rows[number]


def _host_of(client: Client) -> str:
    """Return the address of this host that the scheduler sees."""
    address: str = client.scheduler_comm.comm.local_address
    return "127.0.0.1" if address.startswith("inproc://") else str(get_address_host(address))


def open_rows(ticket: Sequence[Any], pickled: bytes, needs: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return what a task returns whose rows are in the client; called in a Dask task.

    Raises
    ------
    DataError
        The client does not hold them any more, or can't be asked.
    """
    with _ClientRows(Ticket(*ticket)) as opened:
        return opened_task(pickled, needs, values, opened.rows)


class _ClientRows:
    """Opens rows of a ticket: those of this process as they are, others over one connection, else by the scheduler."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket, self._here = ticket, _held.get(ticket.name)
        self._host = ticket.address.rpartition(":")[0]
        self._reader: ValueReader | None = None
        self._was_reached = False

    def __enter__(self) -> _ClientRows:
        if self._here is None and _unreachable.get(self._host, 0.0) < time.monotonic():
            credentials = Credentials(key=self._ticket.key, tls=certificates(get_worker(), "worker"))
            try:
                self._reader = ValueReader(self._ticket.address, credentials, REACHED_S)
                self._was_reached = True
            except LaunchError:
                pass  # that it is out of reach, and not gone, is seen when the client answers by way of the scheduler
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.__exit__()

    def rows(self, number: int) -> Any:
        if self._here is not None:
            return self._here.rows[number]
        if self._reader is not None:
            try:
                return self._reader.read(number)
            except (EOFError, OSError):
                self._reader.__exit__()
                self._reader = None
        rows = unpacked(ask(get_worker(), self._ticket.client, self._ticket.name, number))
        if not self._was_reached:
            _unreachable[self._host] = time.monotonic() + UNREACHABLE_S
        return rows
