"""What steps that are tried would tell other workers: of a batch as a whole, and of its parts one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_train.fitting.backends.rounding import ROUNDED, size_of


class _Exchange(NamedTuple):
    """One exchange of a step.

    Attributes
    ----------
    kind
        What is done with arrays of several workers.
    arrays
        What the step of the whole batch gives, or the parts together.
    """

    kind: str
    arrays: list[np.ndarray]


class TriedExchanges:
    """Plays the other workers in a step of a whole batch, then in steps of its parts.

    A part is given what the step of the whole batch has exchanged. If what the parts give adds up to that, in each
    exchange, then workers with these parts would have exchanged the same, and trained the model of one process.

    Parameters
    ----------
    num_values
        Values of each gradient that are compared at most. Default: 65,536.
    """

    def __init__(self, num_values: int = 1 << 16) -> None:
        self._num_values = num_values
        self._whole: list[_Exchange] = []
        self._parts: list[_Exchange] = []
        self._is_whole, self._is_first, self._number, self._rows = True, True, 0, slice(0)

    def begin_whole(self) -> None:
        """Begin the step of the whole batch."""
        self._is_whole = True

    def begin_part(self, rows: slice) -> None:
        """Begin the step of a part, of these rows of the batch; the first part begins with row 0."""
        self._check_all()
        self._is_whole, self._is_first, self._number, self._rows = False, rows.start == 0, 0, rows

    def finish(self) -> None:
        """End the step of the last part.

        Raises
        ------
        ValueError
            It has exchanged less than the step of the whole batch.
        """
        self._check_all()

    def sum(self, arrays: Sequence[np.ndarray], weight: float) -> list[np.ndarray]:
        """Return the sum over all workers of arrays that count ``weight`` times."""
        sums = self._exchanged("sum", [_weighted(array, weight) for array in arrays])
        return [one.astype(array.dtype) for one, array in zip(sums, arrays, strict=True)]

    def gather(self, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], slice]:
        """Return the rows of all workers, and which of them are those of this step."""
        gathered_arrays = self._exchanged("gather", [np.array(array) for array in arrays])
        return [np.array(one) for one in gathered_arrays], slice(0, len(arrays[0])) if self._is_whole else self._rows

    def gradients(self, arrays: Sequence[np.ndarray], weight: float) -> None:
        """Note gradients that optimizers are to be given, which count ``weight`` times."""
        self._exchanged("sum", [_weighted(self._some_of(array), weight) for array in arrays])

    def slices(self, indices: np.ndarray, values: np.ndarray, weight: float) -> None:
        """Note gradients of rows of a table, by index."""
        self._exchanged("slices", [np.array(indices), _weighted(values, weight)])

    @property
    def is_used(self) -> bool:
        """Return whether steps exchange anything."""
        return bool(self._whole)

    @property
    def is_finite(self) -> bool:
        """Return whether all numbers are finite."""
        return self.is_whole_finite and _are_finite(self._parts)

    @property
    def is_whole_finite(self) -> bool:
        """Return whether all numbers of the step of the whole batch are finite."""
        return _are_finite(self._whole)

    def adds_up(self, room: float) -> bool:
        """Return whether what the parts have given adds up to what the whole batch has.

        Parameters
        ----------
        room
            By how much values may differ that are rounded, relative to the largest of their array.
        """
        pairs = [pair for one, other in zip(self._whole, self._parts, strict=True) for pair in _pairs(one, other)]
        return _alike(pairs, room)

    def is_like(self, other: TriedExchanges, room: float) -> bool:
        """Return whether the step of the whole batch has exchanged what it has in another trial."""
        if [one.kind for one in self._whole] != [one.kind for one in other._whole]:
            return False
        return _alike([pair for two in zip(self._whole, other._whole, strict=True) for pair in _pairs(*two)], room)

    def _exchanged(self, kind: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Note what this step gives, and return what all give."""
        if self._is_whole:
            self._whole.append(_Exchange(kind, arrays))
            return arrays
        number, self._number = self._number, self._number + 1
        if number >= len(self._whole) or self._whole[number].kind != kind:
            raise ValueError("parts of a batch are exchanged otherwise than the whole")
        if self._is_first:
            self._parts.append(_Exchange(kind, arrays))
        else:
            before = self._parts[number].arrays
            both = zip(before, arrays, strict=True)
            now = [one + other if kind == "sum" else np.concatenate([one, other]) for one, other in both]
            self._parts[number] = _Exchange(kind, now)
        return self._whole[number].arrays

    def _check_all(self) -> None:
        if not self._is_whole and self._number != len(self._whole):
            raise ValueError("a part of a batch exchanges less than the whole")

    def _some_of(self, array: np.ndarray) -> np.ndarray:
        """Return values of an array from all over it."""
        return array.reshape(-1)[:: max(1, math.ceil(array.size / self._num_values))]


def _are_finite(exchanges: Sequence[_Exchange]) -> bool:
    arrays = [array for one in exchanges for array in one.arrays]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind in "fc")


def _weighted(array: np.ndarray, weight: float) -> np.ndarray:
    exact = array.dtype.isbuiltin == 1 and array.dtype.itemsize >= 4
    return np.asarray(array, array.dtype if exact else np.float32) * weight


def _pairs(one: _Exchange, other: _Exchange) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return what is to be the same; gradients of a table's rows are added up by row."""
    if one.kind != "slices":
        return list(zip(one.arrays, other.arrays, strict=True))
    places = np.unique(np.concatenate([one.arrays[0], other.arrays[0]]))
    return [(_by_row(one, places), _by_row(other, places))]


def _by_row(exchange: _Exchange, places: np.ndarray) -> np.ndarray:
    indices, values = exchange.arrays
    total = np.zeros((len(places), *values.shape[1:]), values.dtype)
    np.add.at(total, np.searchsorted(places, indices), values)
    return total


def _alike(pairs: Sequence[tuple[np.ndarray, np.ndarray]], room: float) -> bool:
    numbers = [(one, other) for one, other in pairs if one.dtype.kind in "fiu" and other.dtype.kind in "fiu"]
    noise = ROUNDED * room * max((size_of(one) for one, _ in numbers), default=0.0)
    for one, other in numbers:
        size = max(size_of(one), size_of(other))
        if one.shape != other.shape or not np.allclose(one, other, rtol=room, atol=max(room * size, noise)):
            return False
    return True
