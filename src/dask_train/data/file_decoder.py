"""How a row of a batch is made of a file: what travels with a column, and what it does with one file.

A column of files lies in shared memory as text does (:mod:`dask_train.data.text`): a row is the path of a file, a
``str`` by which errors name it, and its content, ``bytes``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.errors import DataError, in_words

# A file as it is stored: its path, and its content.
FILE_SHAPE = (2,)


@dataclass(frozen=True, kw_only=True)
class FileDecoder:
    """What makes rows of batches of files.

    Attributes
    ----------
    functions
        A pickle of the user's functions: ``decode(content)``, and ``augment(row, generator)`` or None.
    dtype, row_shape
        What they make of each file, as of a :class:`~dask_train.data.columns.Column`.
    is_random
        Whether there is an ``augment``.
    """

    functions: bytes = field(repr=False)
    dtype: str
    row_shape: tuple[int, ...]
    is_random: bool = False

    @classmethod
    def of(cls, decode: Callable[[bytes], Any], augment: Callable[..., Any] | None, like: np.ndarray) -> FileDecoder:
        """Return the decoder of functions that make rows like this one.

        Raises
        ------
        TypeError
            A function can't be pickled.
        """
        try:
            functions = cloudpickle.dumps((decode, augment))
        except Exception as error:
            raise TypeError(
                f"decode= or augment= can't be sent to the workers: {in_words(error)}. It holds a lock, a file or a "
                "connection. Make that within the function."
            ) from error
        return cls(
            functions=functions, dtype=like.dtype.str, row_shape=tuple(like.shape), is_random=augment is not None
        )

    def opened(self) -> OpenedFileDecoder:
        """Return the functions, ready to be called; imports what they need."""
        decode, augment = pickle.loads(self.functions)  # noqa: S301 - sent by the client, as all Dask tasks are
        return OpenedFileDecoder(decode, augment)


class OpenedFileDecoder:
    """Calls the functions of a decoder, and names the file where they fail.

    Parameters
    ----------
    decode, augment
        As of :func:`dask_train.files`.
    """

    def __init__(self, decode: Callable[[bytes], Any], augment: Callable[..., Any] | None) -> None:
        self._decode, self._augment = decode, augment

    def decoded(self, path: str, content: bytes) -> np.ndarray:
        """Return what ``decode`` makes of a file, C-contiguous or not.

        Raises
        ------
        DataError
            It raises, or returns no array of numbers.
        """
        try:
            return as_row(self._decode(content))
        except Exception as error:
            raise DataError(
                f"File {path!r} can't be decoded: decode raised {in_words(error).rstrip('.')}.",
                change="Mend or remove the file; or pass on_error='skip', which leaves such files out.",
            ) from error

    def row(self, path: str, content: bytes, generator: Callable[[], np.random.Generator]) -> np.ndarray:
        """Return the row of a file, C-contiguous or not.

        Parameters
        ----------
        path, content
            The file.
        generator
            Makes the generator for ``augment``.

        Raises
        ------
        DataError
            A function raises, or returns no array of numbers.
        """
        row = self.decoded(path, content)
        if self._augment is None:
            return row
        # It may write to the row; those of Pillow and of frozen buffers can't be written to.
        own = row if row.flags.writeable else row.copy()
        try:
            return as_row(self._augment(own, generator()))
        except Exception as error:
            raise DataError(
                f"The row of file {path!r} can't be augmented: augment raised {in_words(error).rstrip('.')}.",
                change="Mend the function that was passed as augment=.",
            ) from error

    def into(self, out: np.ndarray, path: str, content: bytes, generator: Callable[[], np.random.Generator]) -> None:
        """Write the row of a file, as :meth:`row` makes it, into an array of the shape and dtype of all rows.

        Raises
        ------
        DataError
            As :meth:`row`, or its shape or dtype is another one.
        """
        row = self.row(path, content, generator)
        if (row.dtype, row.shape) != (out.dtype, out.shape):
            raise DataError(
                f"File {path!r} becomes {row.dtype} {row.shape}, and the first file became {out.dtype} {out.shape}.",
                "Rows of a batch need one shape and dtype, and decode= or augment= keeps those of each file.",
                "Resize or crop, and convert the dtype, in decode=.",
            )
        out[...] = row

    def write(self, out: np.ndarray, stored: np.ndarray, generator: Callable[[int], np.random.Generator]) -> None:
        """Write the rows of several files; see :class:`~dask_train.data.decoder.OpenedDecoder`.

        Raises
        ------
        DataError
            As of :meth:`into`.
        """
        for at, (path, content) in enumerate(stored):
            self.into(out[at, ...], path, content, partial(generator, at))


def as_row(value: Any) -> np.ndarray:
    """Return what a user's function made as an array of numbers: of arrays, tensors and Pillow's images.

    Raises
    ------
    TypeError
        It is not one.
    """
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"it returned a {type(value).__name__}, which is no array of numbers")
    return array
