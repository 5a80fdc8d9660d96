"""Dask arrays whose blocks are columns of segments: views of the shared memory where the segments lie, or decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.highlevelgraph import HighLevelGraph
from dask.tokenize import tokenize

from dask_train.collections.pickled import carried
from dask_train.data.columns import Column, check_same_partition
from dask_train.data.decoder import Decoder

if TYPE_CHECKING:
    import dask.array as da

_PREFIX = "dask-train-rows"


@dataclass(frozen=True, kw_only=True)
class SharedOrigin:
    """What an array was made of.

    Attributes
    ----------
    segments
        Futures of the segments, by key, in order.
    number, num_columns
        The number of its column, and how many columns the segments have.
    decoded
        The column as it is stored, with what decodes it, where the array is of decoded rows; else None.
    """

    segments: dict[Any, Any]
    number: int
    num_columns: int
    decoded: Column | None = None


def view(segment: Any, number: int, partition: int, num_rows: int) -> Any:
    """Return a block: a read-only view of a segment's shared memory, a CSR matrix of sparse rows.

    Raises
    ------
    DataError
        The segment was computed again, and has another number of rows.
    """
    now = segment.num_rows, segment.columns
    check_same_partition("the data set in shared memory", partition, (num_rows, ()), now)
    return segment.arrays()[number]


def decoded_rows(segment: Any, number: int, partition: int, num_rows: int, column: Column) -> np.ndarray:
    """Return a block of decoded rows, in memory of its own; raises what :func:`view` does."""
    decoder, stored = column.decoder, view(segment, number, partition, num_rows)
    assert decoder is not None
    assert not decoder.is_random, "a block has no place in the order of rows, which random numbers depend on"
    rows = column.in_batch.empty(len(stored))
    decoder.opened().write(rows, stored, np.random.default_rng)
    return rows


def arrays_of(
    segments: Mapping[Any, Any],
    columns: Sequence[Column],
    lengths: Sequence[int],
) -> list[da.Array]:
    """Return one array a column, ``(num_rows, *row_shape)``, one block a segment; nothing is copied.

    Parameters
    ----------
    segments
        Futures of segments, by key, in order.
    columns
        What they are.
    lengths
        Rows of each segment.
    """
    import dask.array as da  # takes a second, and many runs have none

    viewed = carried(view)
    own = f"{_PREFIX}-segments-{len(columns)}-{tokenize(list(segments))}"
    arrays = []
    for number, column in enumerate(columns):
        name = f"{_PREFIX}-{number}-{tokenize(list(segments))}"
        rest = (0,) * len(column.row_shape)
        numbered = enumerate(zip(segments, lengths, strict=True))
        blocks = {(name, block, *rest): (viewed, key, number, block, length) for block, (key, length) in numbered}
        graph = HighLevelGraph({own: dict(segments), name: blocks}, {own: set(), name: {own}})
        chunks = (tuple(lengths), *((size,) for size in column.row_shape))
        arrays.append(da.Array(graph, name, chunks, dtype=np.dtype(column.dtype), meta=_empty_block(column)))
    return arrays


def _empty_block(column: Column) -> Any:
    """Return what Dask takes for a block without rows; None of a dense array, which its dtype tells."""
    if not column.is_sparse:
        return None
    from scipy.sparse import csr_array

    return csr_array((0, *column.row_shape), dtype=column.dtype)


def decoded(array: da.Array, decoder: Decoder) -> da.Array:
    """Return an array of :func:`arrays_of` as batches are to have it: lazily."""
    import dask.array as da

    origin = origin_of(array)
    assert origin is not None
    column = Column(dtype=array.dtype.str, row_shape=tuple(map(int, array.shape[1:])), decoder=decoder)
    layers = array.__dask_graph__().layers
    own = next(name for name in layers if name.startswith(f"{_PREFIX}-segments-"))
    name = f"{_PREFIX}-decoded-{tokenize(array.name, column)}"
    opened, rest = carried(decoded_rows), (0,) * len(decoder.row_shape)
    numbered = enumerate(zip(origin.segments, array.chunks[0], strict=True))
    blocks = {
        (name, block, *rest): (opened, key, origin.number, block, length, column) for block, (key, length) in numbered
    }
    graph = HighLevelGraph({own: layers[own], name: blocks}, {own: set(), name: {own}})
    chunks = (array.chunks[0], *((size,) for size in decoder.row_shape))
    return da.Array(graph, name, chunks, dtype=np.dtype(decoder.dtype))


def origin_of(array: Any) -> SharedOrigin | None:
    """Return what an array was made of by :func:`arrays_of` or :func:`decoded`; None for any other."""
    import dask.array as da

    if not isinstance(array, da.Array) or not array.name.startswith(_PREFIX):
        return None
    layers = array.__dask_graph__().layers
    blocks, rest = layers.get(array.name), (0,) * (array.ndim - 1)
    own = next((name for name in layers if name.startswith(f"{_PREFIX}-segments-")), None)
    if blocks is None or own is None:
        return None
    num_columns = int(own.removeprefix(f"{_PREFIX}-segments-").partition("-")[0])
    origin = SharedOrigin(segments={}, number=-1, num_columns=num_columns)
    for block in range(array.numblocks[0]):
        task = blocks.get((array.name, block, *rest))
        if not isinstance(task, tuple) or len(task) not in (5, 6) or task[1] not in layers[own]:
            return None
        origin.segments[task[1]] = layers[own][task[1]]
        origin = replace(origin, number=task[2], decoded=task[5] if len(task) == 6 else None)
    return origin
