"""Collectives on any arrays: all ranks see that they make the same call before an array moves."""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dask_train.collectives.announcements import PAYLOAD_BYTES, Announcements, CollectiveCall
from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.reductions import Reduction
from dask_train.collectives.shared_memory import SumBuffer
from dask_train.data.alignment import rounded

# Memory for calls with arrays of other shapes is kept up to this much on each host, and then given to new ones.
KEPT_BYTES = 256 << 20
# And up to so many kinds of arrays, since each takes a descriptor of the process: of 1,024 that it has by default.
KEPT_CHANNELS = 64
# Arrays whose numbers of rows go with one announcement, 8 bytes each; more of them are gathered a slice at a time.
_ARRAYS_AT_ONCE = PAYLOAD_BYTES // 8

_Shapes = tuple[tuple[int, ...], ...]


class CheckedCollectives:
    """What the ranks of a group do together, with arrays of any shapes and dtypes that have no Python objects.

    Every rank makes the same calls in the same order. Results are new arrays; they are the same on all ranks to the
    last bit.

    Parameters
    ----------
    group
        The ranks; closed with this.
    names
        What errors call them.
    """

    def __init__(self, group: ProcessGroup, names: Sequence[str]) -> None:
        self._group = group
        self._announcements = Announcements(group, names)
        self._first = group.top
        self._channels: dict[tuple[_Shapes, str], SumBuffer] = {}
        self._busy = threading.Lock()
        self._over = ""

    def all_reduce(self, arrays: Sequence[np.ndarray], reduction: Reduction) -> list[np.ndarray]:
        """Combine each array over all ranks.

        Parameters
        ----------
        arrays
            This rank's.
        reduction
            How, and whether it can be.

        Raises
        ------
        TypeError
            A dtype has no such reduction.
        ValueError
            Another rank has made another call, or has returned.
        OverflowError
            A sum is larger than its dtype holds.
        StalledError
            Another rank did not come in time.
        """
        call = _call(f"all_reduce(op={reduction.op!r})", tuple((array.dtype.str, array.shape) for array in arrays))
        inputs = [np.ascontiguousarray(reduction.before(array)) for array in arrays]
        with self._alone():
            totals = self._small_sum(call, inputs, reduction) if _fits(inputs) else self._sum(call, inputs, reduction)
        return [
            reduction.after(total.reshape(array.shape), array.dtype, self._group.size)
            for total, array in zip(totals, arrays, strict=True)
        ]

    def _small_sum(self, call: CollectiveCall, arrays: list[np.ndarray], reduction: Reduction) -> list[np.ndarray]:
        """Every rank combines all ranks' arrays for itself, in their order."""
        pages = self._announcements.exchange(call, _padded(arrays))
        columns = zip(*(_arrays_in(page, arrays) for page in pages), strict=True)
        # The first is copied: it lies in memory that is written to again.
        return [functools.reduce(reduction.combine, each[1:], each[0].copy()) for each in columns]

    def _sum(self, call: CollectiveCall, arrays: list[np.ndarray], reduction: Reduction) -> list[np.ndarray]:
        self._announcements.exchange(call)
        by_number: dict[int, np.ndarray] = {}
        numbers = range(len(arrays))
        for dtype in sorted({array.dtype.str for array in arrays}):
            its = [number for number in numbers if arrays[number].dtype.str == dtype]
            channel = self._channel(tuple(arrays[number].shape for number in its), dtype)
            totals = self._group.combine(channel, [arrays[number] for number in its], reduction.combine)
            by_number.update(zip(its, (total.copy() for total in totals), strict=True))
        return [by_number[number] for number in numbers]

    def broadcast(self, arrays: Sequence[np.ndarray], root: int) -> list[np.ndarray]:
        """Return the arrays of one rank; errors as of :meth:`all_reduce`."""
        if not 0 <= root < self._group.size:
            raise ValueError(f"root is {root}; the ranks are 0 to {self._group.size - 1}.")
        call = _call(f"broadcast(root={root})", tuple((array.dtype.str, array.shape) for array in arrays))
        contiguous = [np.ascontiguousarray(array) for array in arrays]
        is_root = self._group.rank == root
        with self._alone():
            if _fits(contiguous):
                page = self._announcements.exchange(call, _padded(contiguous) if is_root else ())[root]
                received = [array.copy() for array in _arrays_in(page, contiguous)]
            else:
                self._announcements.exchange(call)
                flat = [_bytes_of(array) for array in contiguous]
                channel = self._channel(tuple(each.shape for each in flat), "|u1")
                totals = self._group.broadcast(channel, flat, root)
                received = [total.copy().view(array.dtype) for total, array in zip(totals, contiguous, strict=True)]
        return [each.reshape(array.shape) for each, array in zip(received, arrays, strict=True)]

    def all_gather(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of all ranks, of each array, in the order of the ranks; errors as of :meth:`all_reduce`."""
        for array in arrays:
            if not array.ndim:
                raise ValueError("all_gather() was given an array without rows, of shape (). Pass x[None].")
        call = _call("all_gather()", tuple((array.dtype.str, ("rows", *array.shape[1:])) for array in arrays))
        gathered: list[np.ndarray] = []
        with self._alone():
            for start in range(0, len(arrays) or 1, _ARRAYS_AT_ONCE):
                gathered += self._gather_slice(call, arrays[start : start + _ARRAYS_AT_ONCE])
        return gathered

    def _gather_slice(self, call: CollectiveCall, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        counts = np.array([len(array) for array in arrays], np.int64)
        parts = [counts, *map(np.ascontiguousarray, arrays)]
        pages = self._announcements.exchange(call, _padded(parts if _fits(parts) else parts[:1]))
        of_each = [_arrays_in(page, parts[:1])[0].copy() for page in pages]
        templates = [_templates(parts, its) for its in of_each]
        if all(map(_fits, templates)):
            by_rank = [_arrays_in(page, its)[1:] for page, its in zip(pages, templates, strict=True)]
            return [np.concatenate(rows) for rows in zip(*by_rank, strict=True)]
        return self._gather(parts[1:], [its[1:] for its in templates])

    def _gather(self, mine: list[np.ndarray], templates: list[list[np.ndarray]]) -> list[np.ndarray]:
        if self._group.size == 1:
            return [array.copy() for array in mine]  # a channel's memory would stay taken for later calls
        edges = [0, *itertools.accumulate(sum(map(_room, its)) for its in templates)]
        room = 1 << max(12, (edges[-1] - 1).bit_length())  # made anew for twice the rows, not for one more
        channel = self._channel(((room,),), "|u1")
        places = [slice(*pair) for pair in itertools.pairwise(edges)]
        padded = np.concatenate(_padded(mine))
        self._group.exchange(channel, padded, places)
        whole = channel.total.data
        by_rank = [_arrays_in(whole[at], its) for at, its in zip(places, templates, strict=True)]
        return [np.concatenate(rows) for rows in zip(*by_rank, strict=True)]

    def barrier(self) -> None:
        """Wait until all ranks have come here; errors as of :meth:`all_reduce`."""
        with self._alone():
            self._announcements.exchange(_call("barrier()", ()))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time; when one has not come to its end, the ranks may be anywhere."""
        if self._over:
            raise ValueError(self._over)
        if not self._busy.acquire(blocking=False):
            raise ValueError(
                "Two threads of a role make collective calls at the same time; their order would be another one on "
                "each rank. Make all of them in one thread."
            )
        try:
            yield
        except BaseException as error:
            self._over = f"An earlier collective call of this role has failed: {error}"
            raise
        finally:
            self._busy.release()

    def _channel(self, shapes: _Shapes, dtype: str) -> SumBuffer:
        """Return the same one for all calls with such arrays, for as long as there is room."""
        if (shapes, dtype) not in self._channels:
            if self._group.top - self._first > KEPT_BYTES or len(self._channels) >= KEPT_CHANNELS:
                self._channels.clear()
                self._group.begin_again(self._first)
            self._channels[shapes, dtype] = self._group.channel(shapes, dtype)
        return self._channels[shapes, dtype]

    def close(self) -> None:
        """Leave: a later call of others is an error there, and none waits for this rank."""
        if not self._over:
            self._announcements.leave()
            self._over = "This role has left the group."
        self._group.close()


@functools.lru_cache(maxsize=256)
def _call(name: str, arrays: tuple[tuple[str, tuple[int | str, ...]], ...]) -> CollectiveCall:
    texts = (f"{np.dtype(dtype)} ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" for dtype, shape in arrays)
    return CollectiveCall(f"{name} of {', '.join(texts)}" if arrays else name)


def _room(array: np.ndarray) -> int:
    return rounded(array.nbytes, 16)


def _fits(arrays: Sequence[np.ndarray]) -> bool:
    return sum(map(_room, arrays)) <= PAYLOAD_BYTES


def _bytes_of(array: np.ndarray) -> np.ndarray:
    flat: np.ndarray = array.reshape(-1)
    return flat.view(np.uint8) if array.nbytes else np.empty(0, np.uint8)


def _padded(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Bytes of the arrays one after the other, each from a multiple of 16 on."""
    parts = []
    for array in arrays:
        parts += [_bytes_of(array), np.zeros(_room(array) - array.nbytes, np.uint8)]
    return parts


def _arrays_in(page: memoryview, templates: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays of which :func:`_padded` made this page, of the shapes of others; no copies."""
    arrays, start = [], 0
    for each in templates:
        size = math.prod(each.shape) if each.dtype.itemsize else 0
        array = np.frombuffer(page, each.dtype, size, start) if size else np.empty(0, each.dtype)
        arrays.append(array.reshape(each.shape))
        start += _room(each)
    return arrays


def _templates(parts: Sequence[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Arrays as those of a rank with that many rows, which take no memory."""
    rows = [
        np.broadcast_to(np.zeros((), array.dtype), (count, *array.shape[1:]))
        for array, count in zip(parts[1:], counts.tolist(), strict=True)
    ]
    return [parts[0], *rows]
