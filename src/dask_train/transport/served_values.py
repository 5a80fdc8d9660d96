"""Values of one process that others of the cluster read over a connection, each as often as they ask for it.

A question is a number. The answer is how many buffers the value has, their lengths, and the buffers; of a value that is
not served any more the connection ends.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.errors import LaunchError
from dask_train.transport.channels import exactly, fill
from dask_train.transport.connections import Credentials, connected, greeted, listening
from dask_train.transport.reception import GONE, NO_ROOM, NO_ROOM_S

# What is written in one piece: the deadline is one for each.
PIECE_BYTES = 8 << 20
# How long the other end may take for a piece, also one whose process is stopped for a while.
PATIENCE_S = 60.0

_NUMBER = struct.Struct(">Q")


class ServedValues:
    """A server of values, with a thread for each connection, from now on until :meth:`stop`.

    Parameters
    ----------
    values
        Numbered by their places.
    host
        The address of this host at which others reach it.
    credentials
        What a request has to contain.

    Attributes
    ----------
    address
        Where it listens, ``host:port``.
    """

    def __init__(self, values: Sequence[Any], host: str, credentials: Credentials) -> None:
        self._values, self._credentials = list(values), credentials
        self._listener = listening(f"[{host}]:0" if ":" in host else f"{host}:0")
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        # It keeps nothing of this object, which may end without a call of stop().
        arguments = (self._listener, self._values, credentials)
        self._thread = threading.Thread(target=_accept, args=arguments, name="dask-train-rows", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let go of the values, and of all connections; takes no lock, so a garbage collection may call it."""
        self._values.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it

    def join(self) -> None:
        """Wait until all connections are closed, which takes no longer than one piece."""
        self._thread.join()


def _accept(listener: socket.socket, values: list[Any], credentials: Credentials) -> None:
    connections: dict[threading.Thread, socket.socket] = {}
    with listener:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno in NO_ROOM:  # those who wait are let in when there is
                    time.sleep(NO_ROOM_S)
                elif error.errno not in GONE:
                    break  # by stop()
                continue
            connections = {thread: own for thread, own in connections.items() if thread.is_alive()}
            arguments = (connection, values, credentials)
            thread = threading.Thread(target=_answer, args=arguments, name="dask-train-rows-to", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there can't be another one now
                connection.close()
                continue
            connections[thread] = connection
    for connection in connections.values():
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    for thread in connections:
        thread.join()


def _answer(connection: socket.socket, values: list[Any], credentials: Credentials) -> None:
    # the client is gone, does not belong here, or asks for what is not served any more
    with (
        contextlib.suppress(EOFError, OSError, LaunchError, IndexError),
        greeted(connection, credentials, listens=True) as known,
    ):
        known.settimeout(PATIENCE_S)
        while True:
            (number,) = _NUMBER.unpack(exactly(known, _NUMBER.size))
            _send(known, packed(values[number]))


def _send(connection: socket.socket, buffers: list[memoryview]) -> None:
    lengths = [buffer.nbytes for buffer in buffers]
    connection.sendall(struct.pack(f">Q{len(lengths)}Q", len(lengths), *lengths))
    for buffer in buffers:
        for start in range(0, buffer.nbytes, PIECE_BYTES):
            connection.sendall(buffer[start : start + PIECE_BYTES])


class ValueReader:
    """Reads values from their server, over one connection; a context manager.

    Raises
    ------
    LaunchError
        No server listens there within ``timeout_s``, or it does not know the key.
    """

    def __init__(self, address: str, credentials: Credentials, timeout_s: float) -> None:
        self._connection = connected(address, credentials, timeout_s)
        self._connection.settimeout(PATIENCE_S)

    def __enter__(self) -> ValueReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(self, number: int) -> Any:
        """Return a value; its arrays lie in memory of their own.

        Raises
        ------
        EOFError
            It is not served any more.
        OSError
            The connection is lost, or nothing comes for a minute.
        """
        self._connection.sendall(_NUMBER.pack(number))
        (count,) = _NUMBER.unpack(self._filled(_NUMBER.size))
        lengths = struct.unpack(f">{count}Q", self._filled(_NUMBER.size * count))
        return unpacked([self._filled(length) for length in lengths])

    def _filled(self, size: int) -> memoryview:
        room = np.empty(size, np.uint8).data  # unlike a bytearray, not filled with zeros first
        fill(self._connection, room)
        return room


def packed(value: Any) -> list[memoryview]:
    """Return the buffers of a value: its pickle, then the memory that the pickle refers to, which is not copied.

    What is not contiguous, such as some rows of an array in Fortran's order, is copied into the pickle.
    """
    outside: list[pickle.PickleBuffer] = []
    inside: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=outside.append)
    return [memoryview(inside), *(buffer.raw() for buffer in outside)]


def unpacked(buffers: Sequence[memoryview]) -> Any:
    """Return the value whose buffers these are; its arrays lie in them."""
    return pickle.loads(buffers[0], buffers=buffers[1:])  # noqa: S301 - both ends are of one cluster
