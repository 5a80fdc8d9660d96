"""Dask arrays whose blocks are columns of segments: views of the shared memory where the segments lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from dask.tokenize import tokenize

from dask_train.collections.pickled import carried

_PREFIX = "dask-train-rows"


def view(segment: Any, column: int) -> np.ndarray:
    """Return a block: a read-only view of a segment's shared memory."""
    array: np.ndarray = segment.arrays()[column]
    return array


def arrays_of(
    segments: Mapping[Any, Any],
    columns: Sequence[tuple[str, tuple[int, ...]]],
    lengths: Sequence[int],
) -> list[da.Array]:
    """Return one array a column, ``(num_rows, *row_shape)``, one block a segment; nothing is copied.

    Parameters
    ----------
    segments
        Futures of segments, by key, in order.
    columns
        dtype and row shape of each.
    lengths
        Rows of each segment.
    """
    viewed = carried(view)
    own = f"{_PREFIX}-segments-{len(columns)}-{tokenize(list(segments))}"
    arrays = []
    for number, (dtype, row_shape) in enumerate(columns):
        name = f"{_PREFIX}-{number}-{tokenize(list(segments))}"
        rest = (0,) * len(row_shape)
        blocks = {(name, block, *rest): (viewed, key, number) for block, key in enumerate(segments)}
        graph = HighLevelGraph({own: dict(segments), name: blocks}, {own: set(), name: {own}})
        chunks = (tuple(lengths), *((size,) for size in row_shape))
        arrays.append(da.Array(graph, name, chunks, dtype=np.dtype(dtype)))
    return arrays


def segments_of(array: Any) -> tuple[dict[Any, Any], int, int] | None:
    """Return what an array was made of by :func:`arrays_of`; None for any other.

    Returns
    -------
    The segments' futures by key, in order; the number of its column, and how many columns the segments have.
    """
    if not isinstance(array, da.Array) or not array.name.startswith(_PREFIX):
        return None
    layers = array.__dask_graph__().layers
    blocks, rest = layers.get(array.name), (0,) * (array.ndim - 1)
    own = next((name for name in layers if name.startswith(f"{_PREFIX}-segments-")), None)
    if blocks is None or own is None:
        return None
    segments, number = {}, -1
    for block in range(array.numblocks[0]):
        task = blocks.get((array.name, block, *rest))
        if not isinstance(task, tuple) or len(task) != 3 or task[1] not in layers[own]:
            return None
        segments[task[1]], number = layers[own][task[1]], task[2]
    return segments, number, int(own.removeprefix(f"{_PREFIX}-segments-").partition("-")[0])
