"""Lines between a worker and a parameter server: short messages, and arrays that go with them.

What a line goes over is in ``memory_lines`` (a host's own memory) and ``network_lines``.
"""

from __future__ import annotations

import pickle
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dask_train.errors import StalledError

_LENGTH = struct.Struct("<Q")


class Line:
    """One end of a line.

    Attributes
    ----------
    out, into
        Arrays to the other end, and from it; both ends name them from their own side.
    """

    def __init__(self, connection: socket.socket, out: Sequence[np.ndarray], into: Sequence[np.ndarray]) -> None:
        self.connection, self.out, self.into = connection, out, into

    def put(self, first: int, values: Iterable[Any]) -> None:
        """Copy values into the arrays that go out, from that number on, once; they go with the next message."""
        for place, value in enumerate(values, first):
            np.copyto(self.out[place], value, casting="unsafe")

    def send(self, message: Any) -> None:
        """Tell the other end something, which then has what was put, too.

        Raises
        ------
        OSError
            It is gone.
        """
        data = pickle.dumps(message)
        self.connection.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float | None) -> Any:
        """What the other end tells next; None for a wait that only its end ends.

        Raises
        ------
        EOFError
            It is gone.
        TimeoutError
            Nothing came in time.
        """
        self.connection.settimeout(timeout_s)
        (length,) = _LENGTH.unpack(exactly(self.connection, _LENGTH.size))
        return pickle.loads(exactly(self.connection, length))  # noqa: S301 - from a process of the same run

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


class Listener(ABC):
    """Where lines come from, on a socket that listens."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def accept(self) -> socket.socket:
        """The next one who dials; waits until somebody does, or this is closed.

        Raises
        ------
        OSError
            It was closed.
        """
        return self._listener.accept()[0]

    @abstractmethod
    def answer(self, connection: socket.socket) -> Line:
        """The line to who has dialled.

        Raises
        ------
        LaunchError
            It has no business here.
        EOFError, OSError
            It is gone.
        """

    def close(self) -> None:
        """Listen no more; a waiting :meth:`accept` ends."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def ask(lines: Sequence[Line], message: Any, timeout_s: float) -> list[Any]:
    """Tell all of them the same, and wait for their answers.

    Raises
    ------
    StalledError
        One did not answer in time.
    EOFError, OSError
        One is gone.
    """
    try:
        for line in lines:
            line.send(message)
        return [line.receive(timeout_s) for line in lines]
    except TimeoutError as error:
        raise StalledError(
            f"A parameter server did not answer within {timeout_s:g} s.",
            "It hangs, or applies gradients slower than workers bring them.",
            "See what it does with run.diagnose(), or raise train.progress.timeout.",
        ) from error


def exactly(connection: socket.socket, size: int) -> bytearray:
    """So many bytes.

    Raises
    ------
    EOFError
        The other end has hung up.
    """
    data = bytearray(size)
    fill(connection, memoryview(data))
    return data


def fill(connection: socket.socket, room: memoryview) -> None:
    """Read until there is no room left, straight into it; raises as :func:`exactly`."""
    while room:
        count = connection.recv_into(room)
        if not count:
            raise EOFError("the other end has hung up")
        room = room[count:]
