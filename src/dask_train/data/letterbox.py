"""A memory file of one process, into which other processes of its host write large arrays for it."""

from __future__ import annotations

import os
import pickle
import secrets
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dask_train.data.alignment import rounded
from dask_train.data.mapping import private_view

# File offsets reserved per writing process, by its pid; the file is sparse, so this takes no memory.
_RANGE_BYTES = 1 << 40
_SECRET_BYTES = 32

# Offset and size of a buffer in the file, in bytes.
Left = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class LetterboxPlace:
    """The address of a letterbox.

    Attributes
    ----------
    pid, descriptor
        Process that owns the letterbox, and the file descriptor there.
    secret
        First bytes of the file, by which writers know it: on another host the same pid and descriptor may be another
        file.
    """

    pid: int
    descriptor: int
    secret: bytes = field(repr=False)


class Letterbox:
    """The owner's side. Its memory is released with this object, except for the views that are in use.

    Attributes
    ----------
    place
        Address for the writers.
    """

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("dask-train-letterbox", os.MFD_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        secret = secrets.token_bytes(_SECRET_BYTES)
        os.pwrite(self._descriptor, secret, 0)
        self.place = LetterboxPlace(pid=os.getpid(), descriptor=self._descriptor, secret=secret)

    def views(self, left: Iterable[Sequence[int]]) -> list[memoryview]:
        """Return views of buffers, each call with new private mappings: changes affect no other reader."""
        return [private_view(self._descriptor, start, size) for start, size in left]

    def close(self) -> None:
        """Release the memory."""
        self._close()


def leave(place: LetterboxPlace, buffers: Sequence[pickle.PickleBuffer]) -> list[Left] | None:
    """Write buffers into a letterbox of this host.

    Returns
    -------
    list of pairs
        Offset and size of each buffer. None if the letterbox can't be reached from here, or memory is full.
    """
    try:
        descriptor = os.open(f"/proc/{place.pid}/fd/{place.descriptor}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    left: list[Left] = []
    start = (1 + os.getpid()) * _RANGE_BYTES
    try:
        if os.pread(descriptor, _SECRET_BYTES, 0) != place.secret:
            return None
        for buffer in buffers:
            view = buffer.raw()
            left.append((start, view.nbytes))
            _write(descriptor, view, start)
            start = rounded(start + view.nbytes)
    except OSError:
        return None
    finally:
        with suppress(OSError):
            os.close(descriptor)
    return left


def _write(descriptor: int, view: memoryview, position: int) -> None:
    while view.nbytes:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
