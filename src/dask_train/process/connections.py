"""A template's connections with the Dask workers that may have processes forked of it.

It listens at an abstract address, so there is no file to remove. Others on the host can connect, too; the first bytes
of a Dask worker are a secret that only its user can read, from the template's environment in ``/proc``. Nothing
else of a connection is looked at before.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from dask_train.transport.frames import FrameReader

# The variable of a template's environment with its secret, and how long that is, in hexadecimal digits.
SECRET, SECRET_BYTES = "DASK_TRAIN_TEMPLATE_SECRET", 64
# Connections that wait while it imports, at most.
_BACKLOG = 1024
_CREDENTIALS = struct.Struct("iII")


def peer_of(end: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end: who connected, or who listened (unix(7), SO_PEERCRED)."""
    pid, user, _ = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


class Connection:
    """One Dask worker.

    Parameters
    ----------
    end
        This end of the socket with it.
    owner
        A pidfd of its process.
    secret
        What it has to say first.

    Attributes
    ----------
    is_known
        Whether it knows the secret.
    """

    def __init__(self, end: socket.socket, owner: int, secret: bytes) -> None:
        self.end, self.owner, self._secret = end, owner, secret
        self.end.setblocking(False)
        self.is_known = False
        self._reader = FrameReader()
        self._first = b""
        self._came: list[int] = []

    def read(self) -> Iterator[tuple[Any, list[int]]]:
        """Yield messages with their descriptors; raises :exc:`EOFError` where there are no more."""
        try:
            data, descriptors, flags, _ = socket.recv_fds(self.end, 1 << 16, 16)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors, flags = b"", [], 0
        self._came += descriptors  # they come with the first byte of their message
        if not data or flags & socket.MSG_CTRUNC:  # or this process has no room for them: the other starts anew
            raise EOFError
        if not self.is_known:
            self._first += data
            secret, data = self._first[:SECRET_BYTES], self._first[SECRET_BYTES:]
            if len(secret) < SECRET_BYTES:
                return
            if not hmac.compare_digest(secret, self._secret):
                raise EOFError
            self.is_known = True
        for message in self._reader.feed(data):
            came, self._came = self._came, []
            yield message, came

    def close(self) -> None:
        """Close it."""
        self.end.close()
        for descriptor in (self.owner, *self._came):
            os.close(descriptor)


class Connections:
    """All of a template; it ends when the last Dask worker is gone."""

    def __init__(self, listener: int) -> None:
        self._listener = socket.socket(fileno=listener)
        self._listener.listen(_BACKLOG)  # from now on the kernel names this process to who connects
        self._listener.setblocking(False)
        self._secret = os.environ.pop(SECRET).encode()
        self._poller = select.poll()
        self._poller.register(listener, select.POLLIN)
        self._by_number: dict[int, Connection] = {}

    def events(self) -> Iterator[tuple[Connection, Any, list[int]]]:
        """Yield each Dask worker once it is known, with None, and later its messages with their descriptors."""
        while True:
            number, _ = self._poller.poll()[0]  # what comes of it may give the numbers of others to new connections
            if number == self._listener.fileno():
                self._accept()
            else:
                yield from self._read(self._by_number[number], number)

    def _accept(self) -> None:
        """Accept all that wait."""
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:  # no more, or it is gone again
                return
            with ExitStack() as stack:
                stack.enter_context(end)
                pid, user = peer_of(end)
                if user != os.geteuid():
                    continue
                try:
                    owner = os.pidfd_open(pid)
                except OSError:
                    continue
                stack.pop_all()
            connection = Connection(end, owner, self._secret)
            for number in (end.fileno(), owner):
                self._by_number[number] = connection
                self._poller.register(number, select.POLLIN)

    def _read(self, connection: Connection, number: int) -> Iterator[tuple[Connection, Any, list[int]]]:
        was_known = connection.is_known
        try:
            if number == connection.owner:  # it is gone, though a process that it has forked may have the socket
                raise EOFError
            messages = list(connection.read())
        except EOFError:
            self._drop(connection)
            return
        if connection.is_known and not was_known:
            yield connection, None, []
        for message, descriptors in messages:
            yield connection, message, descriptors

    def _drop(self, connection: Connection) -> None:
        for number in (connection.end.fileno(), connection.owner):
            del self._by_number[number]
            self._poller.unregister(number)
        connection.close()
        self._accept()  # they may have waited for as long as the imports took
        if connection.is_known and not self._by_number:
            os._exit(0)

    def close(self) -> None:
        """Close all in a fork."""
        self._listener.close()
        for connection in set(self._by_number.values()):
            connection.close()
