"""Pickles whose large arrays lie outside them in shared memory, from where all processes of a host map them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pickle import PickleBuffer
from typing import NamedTuple

import numpy as np

from dask_train.data.borrowing import borrow
from dask_train.data.mapping import private_view
from dask_train.data.segment import Segment, SegmentPlace
from dask_train.errors import LaunchError

# Smaller arrays travel with the pickle: a mapping of their own costs more than a copy of them.
LARGE_BYTES = 1 << 20


class PooledBytes(NamedTuple):
    """Bytes in the pool of another process of the host; good as long as that process keeps them."""

    place: SegmentPlace
    size: int


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A pickle, and the buffers that it leaves out (PEP 574).

    Where it is pickled itself, segments come along: they then lie in the pool of the process that has unpickled it.

    Attributes
    ----------
    pickle
        The pickle.
    buffers
        In its order. Small ones are bytes, large ones segments of this process's pool, or lent from another process.
    """

    pickle: bytes = field(repr=False)
    buffers: tuple[bytearray | Segment | PooledBytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, data: bytes, buffers: Sequence[PickleBuffer]) -> Parcel:
        """Return a pickle and the buffers that it left out; large ones are copied once, into this process's pool."""
        return cls(pickle=data, buffers=tuple(_put(buffer.raw()) for buffer in buffers))

    @property
    def segments(self) -> list[Segment]:
        """The large buffers that this object keeps."""
        return [buffer for buffer in self.buffers if isinstance(buffer, Segment)]

    def lent(self) -> Parcel:
        """Return the same for a process of this host, with nothing to copy; this object has to live meanwhile."""
        return replace(
            self,
            buffers=tuple(_lent(buffer) if isinstance(buffer, Segment) else buffer for buffer in self.buffers),
        )

    def mapped(self) -> Iterator[bytearray | memoryview]:
        """Yield the buffers as :func:`pickle.loads` takes them; changes in them are this process's alone.

        Raises
        ------
        LaunchError
            The process that has lent some is gone, or can't be reached from here.
        """
        for buffer in self.buffers:
            if isinstance(buffer, bytearray):
                yield buffer
            else:
                yield _mapped(_lent(buffer) if isinstance(buffer, Segment) else buffer)


def reachable(parcels: Sequence[Parcel]) -> bool:
    """Return whether this process can map what was lent."""
    try:
        for parcel in parcels:
            for _ in parcel.mapped():
                pass
    except LaunchError:
        return False
    return True


def _put(view: memoryview) -> bytearray | Segment:
    return bytearray(view) if view.nbytes < LARGE_BYTES else Segment([np.frombuffer(view, np.uint8)])


def _lent(segment: Segment) -> PooledBytes:
    return PooledBytes(segment.place, segment.nbytes)


def _mapped(lent: PooledBytes) -> memoryview:
    descriptor = borrow([lent.place])
    if descriptor is None:
        raise LaunchError(
            f"Process {lent.place.pid} can't be reached any more, in whose memory the arrays of a role's function lie.",
            "It has ended.",
        )
    try:
        return private_view(descriptor, lent.place.offsets[0], lent.size)
    finally:
        os.close(descriptor)
