"""What one Dask worker tells another, or a client, of the segments that it holds; runs on its event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import Worker

from dask_train.data.columns import Column
from dask_train.data.segment import Segment, SegmentPlace


class SegmentOffer(NamedTuple):
    """A segment that is here.

    Attributes
    ----------
    place
        Where it lies.
    num_rows, columns
        What it has. Dask may have computed it anew since the reader was told of it.
    """

    place: SegmentPlace
    num_rows: int
    columns: tuple[Column, ...]


def describe(keys: Sequence[Any], dask_worker: Worker) -> dict[Any, tuple[int, tuple[Column, ...]]]:
    """Return rows and columns of the segments that are here.

    Raises
    ------
    TypeError
        A result is no segment.
    """
    return {key: (segment.num_rows, segment.columns) for key, segment in _segments(keys, dask_worker)}


def places(keys: Sequence[Any], dask_worker: Worker) -> dict[Any, SegmentOffer]:
    """Return where the segments lie that are here, and what they have."""
    segments = _segments(keys, dask_worker)
    return {key: SegmentOffer(segment.place, segment.num_rows, segment.columns) for key, segment in segments}


def rows(
    keys: Sequence[Any],
    numbers: Sequence[np.ndarray],
    lengths: Sequence[int],
    columns: tuple[Column, ...],
    dask_worker: Worker,
) -> list[list[np.ndarray] | tuple[int, tuple[Column, ...]]] | None:
    """Return rows of segments.

    Parameters
    ----------
    keys, numbers
        The segments, and int64 ``(k,)`` for each: which of its rows.
    lengths, columns
        Rows of each segment and the columns of all, as the reader knows them.

    Returns
    -------
    For each segment its columns, ``(k, *row_shape)``, copied once; or the number of its rows and its columns, if the
    reader knows others. None if one of them is not here.
    """
    segments = dict(_segments(keys, dask_worker))
    if len(segments) < len(keys):
        return None
    return [
        segment.rows(chosen)
        if (segment.num_rows, segment.columns) == (length, columns)
        else (segment.num_rows, segment.columns)
        for segment, chosen, length in zip(map(segments.__getitem__, keys), numbers, lengths, strict=True)
    ]


def _segments(keys: Sequence[Any], worker: Worker) -> list[tuple[Any, Segment]]:
    segments = []
    for key in keys:
        if key in worker.data:
            value = worker.data[key]
            if not isinstance(value, Segment):
                raise TypeError(f"{key} is a {type(value).__name__} and no segment")
            segments.append((key, value))
    return segments
