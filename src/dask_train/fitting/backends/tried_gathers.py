"""What steps that are tried get as the rows of all workers: those of one batch, whatever part of it a step has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class TriedGather:
    """One place in a step where rows are gathered; by its number its derivative is found."""

    number: int = -1
    rows: int = 0


class TriedGathers:
    """Plays the other workers in steps that one process tries.

    The first pass is of a whole batch, whose rows are noted. In all later ones a step is given these, by the order in
    which it asks, whether it has twice as many rows or a part of them.

    Attributes
    ----------
    whole_rows
        Rows of the whole batch, where a backend has to know shapes.

    Notes
    -----
    Derivatives of the parts are first noted, then given: see :meth:`begin`. Of rows that are gathered of what was
    gathered before they are not complete, so that such a step is not found to be one that workers can take together.
    """

    def __init__(self) -> None:
        self.whole_rows = 1
        self._gathered: list[np.ndarray] = []
        self._derived: dict[int, np.ndarray] = {}
        self._number, self._part, self._share, self._is_first, self._notes = 0, slice(None), 1.0, True, False

    def begin(self, part: slice = slice(None), share: float = 1.0, *, notes: bool = False) -> None:
        """Begin a pass.

        Parameters
        ----------
        part
            Which rows of the whole batch it is of.
        share
            Of the rows that it has.
        notes
            Whether derivatives are added up with those of other parts; else what was added up is given.
        """
        self._is_first = not self._gathered
        self._number, self._part, self._share, self._notes = 0, part, share, notes

    def forget(self) -> None:
        """Forget all rows: the next pass is of another batch."""
        self._gathered, self._derived = [], {}

    @property
    def are_used(self) -> bool:
        """Whether a step has gathered rows."""
        return bool(self._gathered)

    def gather(self, one: TriedGather, array: np.ndarray) -> np.ndarray:
        """Return the rows of the whole batch."""
        one.number, one.rows, self._number = self._number, len(array), self._number + 1
        if self._is_first:
            self._gathered.append(np.array(array))
        return self._gathered[one.number].copy()

    def spread(self, one: TriedGather, array: np.ndarray) -> np.ndarray:
        """Return the derivative by this pass' rows."""
        if self._notes:
            before = self._derived.get(one.number, np.zeros_like(array))
            self._derived[one.number] = before + array.dtype.type(self._share) * array
        derivative = array if self._notes else self._derived.get(one.number, array)
        mine = derivative[self._part]
        if len(mine) != one.rows:  # the same rows twice: derivatives are not used
            return np.zeros((one.rows, *array.shape[1:]), array.dtype)
        part: np.ndarray = (mine / self._share).astype(array.dtype)
        return part
