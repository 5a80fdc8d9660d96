"""Codes of categories that lie in memory as they are; when they are read they are a column of 0 and 1 for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Indicators:
    """A decoder of rows of numbers and of codes, ``(n, columns)``: an indicator for each category, ``(n, wider)``.

    Attributes
    ----------
    num_categories
        Of each column the number of its categories; None of one of numbers, which stays as it is.
    """

    num_categories: tuple[int | None, ...]

    dtype = "<f8"
    is_random = False

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Return the number of columns."""
        return (sum(1 if number is None else number for number in self.num_categories),)

    def opened(self) -> Indicators:
        """Return itself: it needs nothing else."""
        return self

    def write(self, out: np.ndarray, stored: np.ndarray, _: Callable[[int], np.random.Generator] | None = None) -> None:
        """Write rows, of which nothing is random; see :class:`~dask_train.data.decoder.OpenedDecoder`.

        Raises
        ------
        ValueError
            A code is none of a category, such as -1 for a missing one.
        """
        at = 0
        for column, number in zip(stored.T, self.num_categories, strict=True):
            if number is None:
                out[:, at] = column
                at += 1
                continue
            if ((column < 0) | (column >= number)).any():
                raise ValueError(
                    f"X has codes from {column.min():g} to {column.max():g} of {number} categories. Leave rows of "
                    "missing categories out, or give them a category of their own."
                )
            out[:, at : at + number] = column[:, None] == np.arange(number)
            at += number

    def decoded(self, stored: np.ndarray) -> np.ndarray:
        """Return rows in memory of their own."""
        out = np.empty((len(stored), *self.row_shape), self.dtype)
        self.write(out, stored)
        return out
