"""What a role process prints: written to an unlinked file in memory, so that it can never block on a reader."""

from __future__ import annotations

import ctypes
import os
import threading

# How much of the end is kept of each role, in bytes.
KEPT_BYTES = 1 << 20
# A role that prints faster than this is read loses what is in between; the file must not eat the memory.
MAX_UNREAD_BYTES = 64 << 20
_PUNCH_HOLE_KEEP_SIZE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)


class Output:
    """Standard output and standard error of one role process, in the order in which it wrote them.

    Attributes
    ----------
    descriptor
        For the process's file descriptors 1 and 2.
    """

    def __init__(self, name: str) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        self._read_to = 0
        self._kept = bytearray()
        self._start = 0  # where in the whole output `_kept` begins
        self._lock = threading.Lock()
        self._closed = False

    def collect(self) -> None:
        """Take over what is new, and give its memory back."""
        with self._lock:
            if not self._closed:
                self._collect()

    def _collect(self) -> None:
        size = os.fstat(self.descriptor).st_size
        if size == self._read_to:
            return
        if size - self._read_to > MAX_UNREAD_BYTES:
            self._read_to = size - KEPT_BYTES
            self._kept.clear()
            self._start = self._read_to
        while self._read_to < size:
            data = os.pread(self.descriptor, min(KEPT_BYTES, size - self._read_to), self._read_to)
            if not data:
                break
            self._read_to += len(data)
            self._kept += data
            if (surplus := len(self._kept) - KEPT_BYTES) > 0:
                del self._kept[:surplus]
                self._start += surplus
        _libc.fallocate(self.descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(self._read_to))

    def since(self, position: int, most: int = KEPT_BYTES) -> tuple[int, str]:
        """Return the last ``most`` bytes that are kept from a position on, and the position after them."""
        end, data = self.bytes_since(position, most)
        return end, data.decode(errors="replace")

    def bytes_since(self, position: int, most: int = KEPT_BYTES) -> tuple[int, bytes]:
        """Return the bytes of :meth:`since`, for callers that join parts: a part may end within a letter."""
        self.collect()
        with self._lock:
            end = self._start + len(self._kept)
            start = max(position, self._start, end - most)
            return end, bytes(self._kept[start - self._start :])

    def close(self) -> None:
        """Keep what there is, and close the file."""
        self.collect()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.descriptor)
