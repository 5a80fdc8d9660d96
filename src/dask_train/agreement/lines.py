"""Lines between two processes of a host: short messages over a socket, arrays through memory that both map.

A parameter server listens, workers dial; each line has memory of its own, which is gone with its two ends.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dask_train.agreement import sockets
from dask_train.agreement.layout import Slot
from dask_train.errors import LaunchError, StalledError

_LENGTH = struct.Struct("<Q")


class Line:
    """One end of a line.

    Attributes
    ----------
    out, into
        Arrays to the other end, and from it; both ends name them from their own side.
    """

    def __init__(self, connection: socket.socket, memory: mmap.mmap, slot: Slot, *, dialled: bool) -> None:
        self._connection = connection
        first, second = slot.arrays(memory, 0), slot.arrays(memory, 1)
        self.out, self.into = (first, second) if dialled else (second, first)

    def send(self, message: Any) -> None:
        """Tell the other end something.

        Raises
        ------
        OSError
            It is gone.
        """
        data = pickle.dumps(message)
        self._connection.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float | None) -> Any:
        """What the other end tells next; None for a wait that only its end ends.

        Raises
        ------
        EOFError
            It is gone.
        TimeoutError
            Nothing came in time.
        """
        self._connection.settimeout(timeout_s)
        (length,) = _LENGTH.unpack(_exactly(self._connection, _LENGTH.size))
        return pickle.loads(_exactly(self._connection, length))  # noqa: S301 - from a process of the same run and user

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class Listener:
    """Where lines come from.

    Parameters
    ----------
    address
        ``host:port`` that this process alone has; gives the socket its name.
    slot
        The arrays that travel on each line.
    """

    def __init__(self, address: str, slot: Slot) -> None:
        self._slot = slot
        self._listener = sockets.listen(_name(address), 64)

    def accept(self) -> Line:
        """The next line; waits until somebody dials, or this is closed.

        Raises
        ------
        OSError
            It was closed.
        """
        while True:
            connection, _ = self._listener.accept()
            try:
                descriptor = os.memfd_create("dask-train-line", os.MFD_CLOEXEC)
                try:
                    os.ftruncate(descriptor, 2 * self._slot.size_bytes)
                    memory = mmap.mmap(descriptor, 2 * self._slot.size_bytes)
                    sockets.pass_memory(connection, descriptor)
                finally:
                    os.close(descriptor)
            except (OSError, LaunchError):  # it has gone, or has no business here
                connection.close()
                continue
            return Line(connection, memory, self._slot, dialled=False)

    def close(self) -> None:
        """Listen no more; a waiting :meth:`accept` ends."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def dial(address: str, slot: Slot, timeout_s: float) -> Line:
    """A line to who listens under that address.

    Raises
    ------
    LaunchError
        Nobody does in time, or it is of another user.
    """
    refusal = LaunchError(
        f"Nobody answers as {address} on this host.",
        "That process is on another host, or has ended.",
        "Let parameter servers and workers share a host: on=[addresses of its Dask workers].",
    )
    connection, descriptor = sockets.connect(_name(address), time.monotonic() + timeout_s, refusal)
    try:
        return Line(connection, mmap.mmap(descriptor, 2 * slot.size_bytes), slot, dialled=True)
    except OSError:
        connection.close()
        raise
    finally:
        os.close(descriptor)


def ask(lines: Sequence[Line], message: Any, timeout_s: float) -> list[Any]:
    """Tell all of them the same, and wait for their answers.

    Raises
    ------
    StalledError
        One did not answer in time.
    EOFError, OSError
        One is gone.
    """
    for line in lines:
        line.send(message)
    try:
        return [line.receive(timeout_s) for line in lines]
    except TimeoutError as error:
        raise StalledError(
            f"A parameter server did not answer within {timeout_s:g} s.",
            "It hangs, or applies gradients slower than workers bring them.",
            "See what it does with run.diagnose(), or raise train.progress.timeout.",
        ) from error


def _name(address: str) -> str:
    return f"line/{address}"


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = connection.recv(min(size - len(data), 1 << 20))
        if not some:
            raise EOFError("the other end has hung up")
        data += some
    return bytes(data)


def filled(arrays: Sequence[np.ndarray], values: Iterable[Any]) -> None:
    """Copy values into the arrays of a line, once."""
    for array, value in zip(arrays, values, strict=True):
        np.copyto(array, value, casting="unsafe")
