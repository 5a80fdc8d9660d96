"""The last states of a training, in memory files that a Dask worker holds while role processes come and go."""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from collections.abc import Sequence

# Each file begins with who holds it, then what its content is, then the content.
_HOLDER_BYTES = 16
# Steps, size and checksum of the content, and a checksum of these three.
_FIELDS = struct.Struct("<QQL")
_CHECKSUM = struct.Struct("<L")
_HEADER_BYTES = _FIELDS.size + _CHECKSUM.size
_CONTENT_AT = 64
_BLANK = bytes(_HEADER_BYTES)
NUM_FILES = 2


def new_files() -> tuple[int, ...]:
    """Return the descriptors of new memory files, empty but for a name of their holder; the caller closes them."""
    holder = secrets.token_bytes(_HOLDER_BYTES)
    descriptors: list[int] = []
    try:
        for _ in range(NUM_FILES):
            descriptors.append(os.memfd_create("dask-train-kept", os.MFD_CLOEXEC))
            os.pwrite(descriptors[-1], holder, 0)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return tuple(descriptors)


class StateMemory:
    """The last two states of a training: one is whole while the other is written.

    Parameters
    ----------
    descriptors
        Of :func:`new_files`, or duplicates of these in another process.

    Attributes
    ----------
    holder
        Name of the Dask worker's files: processes that have the same write into the same memory.
    """

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._files = tuple(descriptors)
        self.holder = os.pread(self._files[0], _HOLDER_BYTES, 0)

    def write(self, steps: int, content: bytes) -> None:
        """Keep a state in place of the older one.

        Its header is blank until the content is there, so a process that is killed meanwhile leaves the newer one.

        Raises
        ------
        OSError
            There is no memory for it. The newer one stays.
        """
        newest = max(self._whole(), key=lambda each: each[1], default=(-1, 0, 0))[0]
        file = self._files[(newest + 1) % NUM_FILES]
        os.pwrite(file, _BLANK, _HOLDER_BYTES)
        os.ftruncate(file, _CONTENT_AT + len(content))
        left, at = memoryview(content), _CONTENT_AT
        while left:
            written = os.pwrite(file, left, at)
            left, at = left[written:], at + written
        fields = _FIELDS.pack(steps, len(content), zlib.crc32(content))
        os.pwrite(file, fields + _CHECKSUM.pack(zlib.crc32(fields)), _HOLDER_BYTES)

    def read(self) -> tuple[int, bytes]:
        """Return the steps of the last whole state, and a copy of it; 0 and nothing if there is none."""
        for number, steps, size in sorted(self._whole(), key=lambda each: -each[1]):
            content = self._content(number, size)
            _, _, checksum = self._header(number)
            if len(content) == size and zlib.crc32(content) == checksum:
                return steps, content
        return 0, b""

    def _content(self, number: int, size: int) -> bytes:
        parts, at = [], _CONTENT_AT
        while part := os.pread(self._files[number], size + _CONTENT_AT - at, at):  # at most 2 GiB at a time
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def _whole(self) -> list[tuple[int, int, int]]:
        """Return number, steps and size of the files with a content."""
        headers = [(number, *self._header(number)) for number in range(NUM_FILES)]
        return [(number, steps, size) for number, steps, size, _ in headers if steps]

    def _header(self, number: int) -> tuple[int, int, int]:
        """Return steps, size and checksum of a file's content; zeros if it has none."""
        header = os.pread(self._files[number], _HEADER_BYTES, _HOLDER_BYTES)
        fields = header[: _FIELDS.size]
        if len(header) < _HEADER_BYTES or header == _BLANK:
            return 0, 0, 0
        if _CHECKSUM.unpack(header[_FIELDS.size :])[0] != zlib.crc32(fields):
            return 0, 0, 0
        steps, size, checksum = _FIELDS.unpack(fields)
        return steps, size, checksum
