"""Messages over the socket pair between a Dask worker and a process of its own: a length, then a pickled object.

Both ends are the same installation on one host, and no one else has the socket, so pickle is safe here.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# The kernel takes 253 descriptors a message (SCM_MAX_FD: man unix(7)).
MAX_DESCRIPTORS = 253
# What sendmsg(2) and unix(7) say where the system has no room for descriptors in flight, and the time between attempts.
NO_ROOM = (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
ROOM_S = 0.01

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Files:
    """The ``data`` of a message that brings open files: their descriptors travel with it, with new numbers there."""

    descriptors: Sequence[int]


def descriptors_of(message: Any) -> Sequence[int]:
    """Return the file descriptors that go with a message."""
    data = getattr(message, "data", None)
    return data.descriptors if isinstance(data, Files) else ()


def with_descriptors(message: Any, descriptors: Sequence[int]) -> Any:
    """Return the message with the numbers that its file descriptors have on this side."""
    data = getattr(message, "data", None)
    if not isinstance(data, Files):
        return message
    return dataclasses.replace(message, data=dataclasses.replace(data, descriptors=tuple(descriptors)))


def encode(message: Any) -> bytes:
    """Return one message as bytes."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the messages that are complete with ``data``."""
        self._bytes += data
        messages = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            messages.append(pickle.loads(memoryview(self._bytes)[_LENGTH.size : end]))  # noqa: S301 - see above
            del self._bytes[:end]
        return messages


def messages_from(end: socket.socket) -> Iterator[Any]:
    """Yield the messages that come, with their descriptors, until the other side is gone; waits for each.

    Raises
    ------
    OSError
        This process has no room for a descriptor that came.
    """
    reader = FrameReader()
    came: list[int] = []  # descriptors come with or before the first byte of the message that they are for
    while True:
        try:
            data, descriptors, flags, _ = socket.recv_fds(end, 1 << 16, MAX_DESCRIPTORS)
        except OSError:
            return
        if not data:
            return
        came += descriptors
        if flags & socket.MSG_CTRUNC:  # else messages would have the descriptors of those that follow
            for descriptor in came:
                os.close(descriptor)
            raise OSError(errno.EMFILE, "a message's files can't be opened: this process has too many open files")
        for message in reader.feed(data):
            num = len(descriptors_of(message))
            mine, came = came[:num], came[num:]
            yield with_descriptors(message, mine)


def send(end: socket.socket, message: Any) -> None:
    """Send a message over a socket that waits, its descriptors first; they stay the caller's here.

    Raises
    ------
    OSError
        The other side is gone, or takes nothing for as long as the socket waits; or the system has no room for
        descriptors for as long as that.
    """
    data, descriptors = encode(message), list(descriptors_of(message))
    ends = time.monotonic() + (end.gettimeout() or 0.0)
    for start in range(0, len(descriptors), MAX_DESCRIPTORS):
        _send_descriptors(end, data[:1], descriptors[start : start + MAX_DESCRIPTORS], ends)
        data = data[1:]
    end.sendall(data)


def _send_descriptors(end: socket.socket, byte: bytes, descriptors: list[int], ends: float) -> None:
    while True:
        try:
            socket.send_fds(end, [byte], descriptors)
        except OSError as error:
            if error.errno not in NO_ROOM or time.monotonic() > ends:
                raise
            time.sleep(ROOM_S)
        else:
            return
