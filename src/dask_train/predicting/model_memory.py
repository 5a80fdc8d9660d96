"""Memory that a Dask worker shares with a model process: the model on its way there, and the rows of blocks."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Sequence

import numpy as np

from dask_train.data.alignment import rounded
from dask_train.predicting.server.values import Call, size_bytes, views

# Pages stay warm between blocks up to this size, in bytes; making them costs twice what filling them again does.
KEEP_WARM_BYTES = 256 << 20


class SlotClosedError(Exception):
    """The slot's process has been ended."""


class Slot:
    """Shared memory for the rows of one block on their way in, and another for what comes out."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptors = [os.memfd_create(f"dask-train-{way}", os.MFD_CLOEXEC) for way in ("rows", "predictions")]
        self._mapped: list[mmap.mmap | None] = [None, None]
        self._lock = threading.Lock()  # a process may be ended while a task fills a slot of it

    def fill(self, call: Call, num_rows: int, images: Sequence[np.ndarray], text_sizes: Sequence[int]) -> None:
        memory = self._memory(0, size_bytes(call.columns, num_rows, text_sizes))
        for target, image in zip(views(memory, call.columns, num_rows, text_sizes), images, strict=True):
            np.copyto(target, image, casting="same_kind")
        self._memory(1, size_bytes(call.outputs, num_rows))

    def read(self, call: Call, num_rows: int) -> list[np.ndarray]:
        with self._lock:
            if not self.descriptors:  # no memory, of which views would be new arrays
                raise SlotClosedError
            mapped = self._mapped[1]
        return [view.copy() for view in views(mapped, call.outputs, num_rows)]

    def _memory(self, which: int, size: int) -> mmap.mmap | None:
        with self._lock:
            mapped = self._mapped[which]
            if size and (mapped is None or len(mapped) < size):
                if not self.descriptors:
                    raise SlotClosedError
                os.ftruncate(self.descriptors[which], size)
                self._mapped[which] = mapped = mmap.mmap(self.descriptors[which], size)
            return mapped

    def trim(self) -> None:
        """Give large memory back."""
        with self._lock:
            for which, mapped in enumerate(self._mapped):
                if mapped is not None and len(mapped) > KEEP_WARM_BYTES and self.descriptors:
                    self._mapped[which] = None
                    os.ftruncate(self.descriptors[which], 0)

    def close(self) -> None:
        """Give all back, even if the slot is still held; what is mapped would keep its file open."""
        with self._lock:
            descriptors, self.descriptors = self.descriptors, []
            self._mapped = [None, None]
        for descriptor in descriptors:
            os.close(descriptor)


def packed_arrays(arrays: Sequence[np.ndarray]) -> tuple[int, list[tuple[str, tuple[int, ...], int]]]:
    """Return the arrays in a file in memory, and where each lies."""
    descriptor = os.memfd_create("dask-train-model", os.MFD_CLOEXEC)
    try:
        return descriptor, _written(descriptor, arrays)
    except BaseException:
        os.close(descriptor)
        raise


def _written(descriptor: int, arrays: Sequence[np.ndarray]) -> list[tuple[str, tuple[int, ...], int]]:
    places, end = [], 0
    for array in arrays:
        places.append((array.dtype.str, tuple(array.shape), end))
        if array.nbytes:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], end + written)
        end += rounded(array.nbytes)
    os.ftruncate(descriptor, end)
    return places
