"""What rows are, by the first one that can be decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from dask_train.data.file_decoder import FileDecoder, OpenedFileDecoder
from dask_train.errors import DataError

# With on_error="skip", the first of this many files that can be decoded shows what rows are.
MOST_TRIED = 100

L = TypeVar("L")


def first_row(
    rows: Iterable[tuple[str, bytes, L]], decode: Callable[[Any], Any], *, what: str, where: str, skips: bool
) -> tuple[str, np.ndarray, L]:
    """Return the name, the decoded row and the label of the first one; where some are skipped, of one of the first.

    Parameters
    ----------
    rows
        Names, contents and labels, which are read one by one.
    decode
        Makes a row of a content.
    what, where
        How errors call one of them, and all.
    skips
        Whether those that can't be decoded are left out.

    Raises
    ------
    DataError
        There is no file, or none can be decoded.
    """
    decoder = OpenedFileDecoder(decode, None)
    errors: list[DataError] = []
    for name, content, label in islice(rows, MOST_TRIED if skips else 1):
        try:
            return name, decoder.row(name, content, np.random.default_rng), label
        except DataError as error:
            errors.append(error)
    if not errors:
        raise DataError(f"There is no {what} in {where}.")
    if not skips:
        raise errors[0]
    raise DataError(f"None of the first {len(errors)} {what}s can be decoded. {errors[0]}") from errors[0]


def augmented(
    decode: Callable[[Any], Any], augment: Callable[..., Any] | None, name: str, row: np.ndarray
) -> FileDecoder | None:
    """Return the decoder of rows that are augmented, as one of them shows their shape; None without ``augment``.

    Raises
    ------
    DataError
        ``augment`` raises, or returns no array of numbers.
    """
    if augment is None:
        return None
    like = OpenedFileDecoder(lambda _: row, augment).row(name, b"", lambda: np.random.default_rng(0))
    return FileDecoder.of(decode, augment, like)
