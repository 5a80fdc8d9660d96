"""What one Dask worker tells another, or a client, of the segments that it holds; runs on its event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Worker

from dask_train.data.columns import Column
from dask_train.data.segment import Segment, SegmentPlace


def describe(keys: Sequence[Any], dask_worker: Worker) -> dict[Any, tuple[int, tuple[Column, ...]]]:
    """Return rows and columns of the segments that are here.

    Raises
    ------
    TypeError
        A result is no segment.
    """
    return {key: (segment.num_rows, segment.columns) for key, segment in _segments(keys, dask_worker)}


def places(keys: Sequence[Any], dask_worker: Worker) -> dict[Any, SegmentPlace]:
    """Return where the segments lie that are here."""
    return {key: segment.place for key, segment in _segments(keys, dask_worker)}


def rows(keys: Sequence[Any], numbers: Sequence[np.ndarray], dask_worker: Worker) -> list[list[np.ndarray]] | None:
    """Return rows of segments.

    Parameters
    ----------
    keys, numbers
        The segments, and int64 ``(k,)`` for each: which of its rows.

    Returns
    -------
    For each segment its columns, ``(k, *row_shape)``, copied once; None if one of them is not here.
    """
    segments = dict(_segments(keys, dask_worker))
    if len(segments) < len(keys):
        return None
    return [segments[key].rows(chosen) for key, chosen in zip(keys, numbers, strict=True)]


def _segments(keys: Sequence[Any], worker: Worker) -> list[tuple[Any, Segment]]:
    segments = []
    for key in keys:
        if key in worker.data:
            value = worker.data[key]
            if not isinstance(value, Segment):
                raise TypeError(f"{key} is a {type(value).__name__} and no segment")
            segments.append((key, value))
    return segments
