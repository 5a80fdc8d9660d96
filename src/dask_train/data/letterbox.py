"""A file in memory of one process, in which other processes of its host leave large arrays for it."""

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

# Of addresses, not of memory. Each process that leaves something has a range of its own, by its number.
_RANGE_BYTES = 1 << 40
_SECRET_BYTES = 32

# Where something begins, and its size, in bytes.
Left = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class LetterboxPlace:
    """Where a letterbox is.

    Attributes
    ----------
    pid, descriptor
        The process that has it, and the number of its file there.
    secret
        With which the file begins. So nothing is left in another file, which has that number on another host.
    """

    pid: int
    descriptor: int
    secret: bytes = field(repr=False)


class Letterbox:
    """The owner's side; the memory goes with this object, except for what is mapped of it.

    Attributes
    ----------
    place
        What others have to know.
    """

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("dask-train-letterbox", os.MFD_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        secret = secrets.token_bytes(_SECRET_BYTES)
        os.pwrite(self._descriptor, secret, 0)
        self.place = LetterboxPlace(pid=os.getpid(), descriptor=self._descriptor, secret=secret)

    def views(self, left: Iterable[Sequence[int]]) -> list[memoryview]:
        """Return what was left, each time mapped anew: changes to it affect no other reader."""
        return [private_view(self._descriptor, start, size) for start, size in left]

    def close(self) -> None:
        """Release the memory."""
        self._close()


def leave(place: LetterboxPlace, buffers: Sequence[pickle.PickleBuffer]) -> list[Left] | None:
    """Put buffers into a letterbox of this host.

    Returns
    -------
    list of pairs
        Where they lie. None if the letterbox can't be reached from here, or there is no room for them.
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
