"""Lines between a worker and a parameter server: short messages, and arrays that go with them.

What a line goes over, a host's own memory or a network, is in ``dialling``.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dask_train.errors import RoleFailedError, StalledError

_LENGTH = struct.Struct("<Q")


class Channel:
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
        """Return what the other end tells next; None for a wait that only its end ends.

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

    def hang_up(self) -> None:
        """Wake waiters at both ends, as nothing comes any more; may be called from any thread."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


@dataclass(frozen=True)
class Refusal:
    """An answer that says why there is none."""

    error: str


def ask(
    lines: Sequence[Channel], messages: Sequence[Any], timeout_s: float, whom: str = "A parameter server"
) -> list[Any]:
    """Send a message to each of them, and wait for their answers; errors name ``whom``.

    Raises
    ------
    StalledError
        One did not answer in time.
    RoleFailedError
        One failed at it.
    EOFError, OSError
        One is gone.
    """
    answers = _answers(lines, messages, timeout_s, whom)
    for answer in answers:
        if isinstance(answer, Refusal):
            raise RoleFailedError(f"{whom} failed at what it was asked: {answer.error}")
    return answers


def _answers(lines: Sequence[Channel], messages: Sequence[Any], timeout_s: float, whom: str) -> list[Any]:
    try:
        for line, message in zip(lines, messages, strict=True):
            line.connection.settimeout(timeout_s)  # else what was left for dialling would be the time for all arrays
            line.send(message)
        return [line.receive(timeout_s) for line in lines]
    except TimeoutError as error:
        raise StalledError(
            f"{whom} did not answer within {timeout_s:g} s.",
            "It hangs, or does what it is asked slower than it is asked.",
            "See what it does with run.diagnose(), or raise train.progress.timeout.",
        ) from error


class Readable(Protocol):
    """A connection, as far as it is read from."""

    def recv_into(self, room: memoryview, /) -> int:
        """Read into a part of the room; its size, 0 where the other end has hung up."""


def exactly(connection: Readable, size: int) -> bytearray:
    """Read that many bytes.

    Raises
    ------
    EOFError
        The other end has hung up.
    """
    data = bytearray(size)
    fill(connection, memoryview(data))
    return data


def fill(connection: Readable, room: memoryview) -> None:
    """Read until there is no room left, straight into it; raises as :func:`exactly`."""
    while room:
        count = connection.recv_into(room)
        if not count:
            raise EOFError("the other end has hung up")
        room = room[count:]
