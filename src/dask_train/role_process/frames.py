"""Messages over the socket pair between an agent and a role process: a length, then a pickled dict.

Both ends are the same installation on one host, and nobody else has the socket, so pickle is safe here.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

# The kernel takes 253 descriptors a message (SCM_MAX_FD: man unix(7)).
MAX_DESCRIPTORS = 253

_LENGTH = struct.Struct(">Q")


def encode(message: dict[str, Any]) -> bytes:
    """One message as bytes."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete with ``data``."""
        self._bytes += data
        found = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            found.append(pickle.loads(memoryview(self._bytes)[_LENGTH.size : end]))  # noqa: S301 - see above
            del self._bytes[:end]
        return found
