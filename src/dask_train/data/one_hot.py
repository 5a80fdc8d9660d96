"""Labels that lie in memory as they are, and are a column of 0 and 1 for each class in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True, kw_only=True)
class OneHot:
    """A decoder of labels, ``(n,)``: a column for each class, ``(n, classes)``.

    Attributes
    ----------
    labels
        The sorted labels.
    label_dtype
        Their dtype, as ``numpy.dtype.str``.
    """

    labels: tuple[Any, ...]
    label_dtype: str

    dtype = "<f8"
    is_random = False

    @classmethod
    def of(cls, classes: np.ndarray) -> Self:
        """Return the decoder of sorted labels."""
        return cls(labels=tuple(classes.tolist()), label_dtype=classes.dtype.str)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Return one number for each class."""
        return (len(self.labels),)

    def opened(self) -> OpenedOneHot:
        """Return the labels as an array."""
        return OpenedOneHot(np.array(self.labels, self.label_dtype))


class OpenedOneHot:
    """Writes a column for each class.

    Parameters
    ----------
    classes
        Sorted labels.
    """

    def __init__(self, classes: np.ndarray) -> None:
        self._classes = classes

    def write(self, out: np.ndarray, stored: np.ndarray, _: Callable[[int], np.random.Generator] | None = None) -> None:
        """Write rows, of which nothing is random; see :class:`~dask_train.data.decoder.OpenedDecoder`.

        Raises
        ------
        ValueError
            A label is not one of the classes.
        """
        numbers = np.clip(np.searchsorted(self._classes, stored), 0, len(self._classes) - 1)
        if (self._classes[numbers] != stored).any():
            raise ValueError("y has other labels now than when its classes were found: it gives other rows each time.")
        out[...] = 0
        out[np.arange(len(out)), numbers] = 1
