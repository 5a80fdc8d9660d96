"""What a column needs whose batches have other rows than those that are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np


class OpenedDecoder(Protocol):
    """A decoder in the process that decodes."""

    def write(self, out: np.ndarray, stored: np.ndarray, generator: Callable[[int], np.random.Generator], /) -> None:
        """Write rows of batches.

        Parameters
        ----------
        out
            ``(n, *row_shape)``, of the decoder's dtype.
        stored
            The same rows as they are stored, ``(n, ...)``.
        generator
            Makes the random generator of a row, given its place in ``stored``.
        """


class Decoder(Protocol):
    """What travels with a column, and is a key of a dict.

    Each kind is a file: :mod:`dask_train.data.file_decoder`, :mod:`dask_train.data.one_hot`,
    :mod:`dask_train.data.indicators`.
    """

    @property
    def dtype(self) -> str:
        """Return the dtype of a batch, as ``numpy.dtype.str``."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Return the shape of one row of a batch."""

    @property
    def is_random(self) -> bool:
        """Return whether rows depend on a random generator."""

    def opened(self) -> OpenedDecoder:
        """Return what decodes; imports what that needs."""
