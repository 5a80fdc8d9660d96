"""Text in shared memory: for each row where its bytes lie and how many they are, then the bytes.

As Arrow lays text out, with two differences that let rows of all segments be numbered through and mapped as one: a row
has its own pair of int64, and the place is counted from that pair on, so that an image means the same wherever it lies.
https://arrow.apache.org/docs/format/Columnar.html#listview-layout

A ``str`` is in UTF-8; of a ``bytes`` object the number of bytes is written as ``~number``, so each comes back as it
was.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Bytes of a pair.
PAIR_BYTES = 16


def is_text(array: np.ndarray) -> bool:
    """Return whether all elements of an array of objects are text."""
    return array.dtype == object and set(map(type, array.ravel())) <= {str, np.str_, bytes, np.bytes_}


def may_be_text(dtype: Any) -> bool:
    """Return whether arrays of a dtype hold text: of NumPy's own kinds, or perhaps as objects."""
    return np.dtype(dtype).kind in "USTO"


def packed(array: np.ndarray) -> np.ndarray:
    """Return the image of an array of text, ``(size,)`` uint8.

    Raises
    ------
    UnicodeEncodeError
        A string holds half of a surrogate pair, which UTF-8 can't encode.
    """
    values = array.ravel().tolist()
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    pairs = np.empty((len(encoded), 2), np.int64)
    pairs[:, 0] = np.cumsum(lengths) - lengths
    pairs[:, 0] += PAIR_BYTES * (len(encoded) - np.arange(len(encoded)))
    pairs[:, 1] = np.where([isinstance(value, str) for value in values], lengths, ~lengths)
    return np.frombuffer(pairs.tobytes() + b"".join(encoded), np.uint8)


def unpacked(memory: np.ndarray, numbers: np.ndarray, row_shape: tuple[int, ...]) -> np.ndarray:
    """Return rows of images that lie one after the other.

    Parameters
    ----------
    memory
        uint8 ``(size,)``; begins where row 0 would.
    numbers
        int64 ``(n,)``: of the rows, counted in pairs from the beginning of the memory.
    row_shape
        Texts of a row.

    Returns
    -------
    numpy.ndarray
        ``(n, *row_shape)``, objects, each a ``str`` or ``bytes`` as it was packed: new ones.
    """
    width = math.prod(row_shape)
    starts = ((numbers[:, None] * width + np.arange(width)) * PAIR_BYTES).ravel()
    pairs = memory[: memory.size // 8 * 8].view(np.int64)
    starts_of, lengths = starts + pairs[starts // 8], pairs[starts // 8 + 1]
    whole = memory.data
    texts = np.empty(starts.size, object)
    for place, (start, length) in enumerate(zip(starts_of.tolist(), lengths.tolist(), strict=True)):
        if length < 0:
            texts[place] = bytes(whole[start : start + ~length])
        else:
            texts[place] = str(whole[start : start + length], "utf-8")
    return texts.reshape(len(numbers), *row_shape)


class TextLayout:
    """Text; see :class:`~dask_train.data.layout.Layout`."""

    def head_shape(self, row_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a pair for each text of a row."""
        return (*row_shape, 2)

    def packed(self, rows: np.ndarray) -> np.ndarray:
        """Do as :func:`packed`."""
        return packed(rows)

    def unpacked(self, memory: np.ndarray, numbers: np.ndarray, _: str, row_shape: tuple[int, ...]) -> np.ndarray:
        """Do as :func:`unpacked`."""
        return unpacked(memory, numbers, row_shape)

    def write(
        self, out: np.ndarray, memory: np.ndarray, numbers: np.ndarray, _: str, row_shape: tuple[int, ...]
    ) -> None:
        """Write rows of text, which partitions, batches and those that travel have alike."""
        out[...] = unpacked(memory, numbers, row_shape)

    def gathered(self, rows: np.ndarray, *_: Any) -> np.ndarray:
        """Return the rows, which are an array already."""
        return rows


TEXT_LAYOUT = TextLayout()
