"""Lazy collections of what a function makes of each block of rows: the same partitions, and nothing computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask
import numpy as np
from dask.base import tokenize
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes

from dask_train.collections.bags import is_bag
from dask_train.collections.tensors import as_numpy
from dask_train.compat.dask import meta_of
from dask_train.data.columns import Column
from dask_train.data.sparse_rows import is_sparse

if TYPE_CHECKING:
    import dask.array as da

# NumPy arrays are cut into blocks of about this size.
PIECE_BYTES = parse_bytes("32 MiB")

# Names of arrays whose blocks are a user's own memory begin so.
_VIEWS = "dask-train-views-"
# Index 0 is that of rows.
_ROWS = 0


def delayed_blocks(arrays: Sequence[da.Array]) -> list[list[Delayed]]:
    """Return the blocks of arrays as delayed values, in order; what arrays share is computed once.

    Optimized one by one, arrays that share tasks could have other tasks of the same key, of which the scheduler warns.
    """
    if not _share_tasks(arrays):
        return [array.to_delayed(optimize_graph=False).ravel().tolist() for array in dask.optimize(*arrays)]
    # dask.optimize would fuse what they share into each of them: two columns of a delayed frame would compute it twice.
    keys = [list(flatten(array.__dask_keys__())) for array in arrays]
    merged = HighLevelGraph.merge(*(array.__dask_graph__() for array in arrays))
    optimized = arrays[0].__dask_optimize__(merged, [key for several in keys for key in several])
    name = f"blocks-{tokenize(keys)}"
    graph = HighLevelGraph.from_collections(name, optimized, dependencies=())
    return [[Delayed(key, graph, layer=name) for key in several] for several in keys]


def _share_tasks(arrays: Sequence[da.Array]) -> bool:
    """Whether two arrays are made of the same layer of tasks, other than by way of one of the arrays themselves."""
    graphs = [array.__dask_graph__() for array in arrays]
    if not all(isinstance(graph, HighLevelGraph) for graph in graphs):
        return False
    outputs, seen = {array.name for array in arrays}, set[str]()
    for array, graph in zip(arrays, graphs, strict=True):
        own: set[str] = set()
        left = [name for name in graph.dependencies[array.name] if name not in outputs]
        while left:
            own.add(name := left.pop())
            left += [each for each in graph.dependencies[name] if each not in outputs and each not in own]
        if own & seen:
            return True
        seen |= own
    return False


def with_whole_rows(what: str, values: Sequence[Any]) -> tuple[da.Array, ...]:
    """Arrays as Dask arrays that are cut at the same rows, and nowhere else.

    Parameters
    ----------
    what
        How errors call them.
    values
        Dask or NumPy arrays, or tensors, ``(num_rows, *row_shape)`` each. The first says where rows are cut.

    Raises
    ------
    TypeError, ValueError
        They are no arrays, or sparse or masked ones, have different numbers of rows, or rows of a shape that is not
        known.
    """
    arrays = tuple(_dask_array(what, value) for value in values)
    first = arrays[0]
    cut = []
    for number, array in enumerate(arrays):
        if any(np.isnan(size) for size in array.shape[1:]):
            raise ValueError(
                f"Array {number} of {what} has the shape {array.shape}: what a row looks like is not known. Give it "
                "its shape where it is made, such as meta= and chunks= of map_blocks."
            )
        known = not (np.isnan(array.shape[0]) or np.isnan(first.shape[0]))
        if known and array.shape[0] != first.shape[0]:
            counts = ", ".join(str(one.shape[0]) for one in arrays)
            raise ValueError(f"The arrays of {what} have {counts} rows; they have to be the same.")
        if not known and array.numblocks[0] != first.numblocks[0]:
            raise ValueError(
                f"Two arrays of {what}, of unknown length, have {first.numblocks[0]} and {array.numblocks[0]} chunks. "
                "Call compute_chunk_sizes() on both first."
            )
        whole = dict.fromkeys(range(1, array.ndim), -1)
        rows = {0: first.chunks[0]} if known else {}
        cut.append(array.rechunk({**rows, **whole}) if rows or whole else array)
    return tuple(cut)


def _dask_array(what: str, value: Any) -> da.Array:
    import dask.array as da  # takes a second, and many runs have none

    value = as_numpy(what, value)
    if not hasattr(value, "dtype") or not hasattr(value, "shape") or hasattr(value, "iloc"):
        change = " Of a bag of dicts make one: bag.to_dataframe()." if is_bag(value) else ""
        raise TypeError(f"{what} has a {type(value).__name__}; pass Dask or NumPy arrays, or one frame.{change}")
    if not value.shape:
        raise ValueError(f"{what} has an array without an axis; rows lie along the first one.")
    check_plain(what, value)
    if isinstance(value, da.Array):
        return value
    row_bytes = max(1, value.nbytes // max(1, len(value)))
    return da.from_array(value, chunks=(max(1, PIECE_BYTES // row_bytes), *value.shape[1:]))


def array_of_views(value: Any, rows: int | None = None) -> da.Array:
    """Return a NumPy array as a Dask array of views, which ``da.from_array`` would copy, and hash.

    Parameters
    ----------
    value
        A NumPy array; or a sparse matrix, whose rows are copied.
    rows
        Of each chunk. Default: as many as :data:`PIECE_BYTES` take.
    """
    # Of a memory map, too.
    value = value.tocsr() if is_sparse(value) else np.asarray(value)
    num_rows = value.shape[0]
    nbytes = value.data.nbytes + value.indices.nbytes if is_sparse(value) else value.nbytes
    rows = rows or max(1, PIECE_BYTES // max(1, nbytes // max(1, num_rows)))
    return array_of_pieces([value[start : start + rows] for start in range(0, max(1, num_rows), rows)])


def array_of_pieces(pieces: Sequence[Any]) -> da.Array:
    """Return arrays, or sparse matrices, of this process as the chunks of one Dask array."""
    import dask.array as da

    first = pieces[0]
    name, rest = f"{_VIEWS}{uuid4().hex}", (0,) * (first.ndim - 1)
    chunks = (tuple(piece.shape[0] for piece in pieces), *((size,) for size in first.shape[1:]))
    graph = {(name, number, *rest): piece for number, piece in enumerate(pieces)}
    return da.Array(graph, name, chunks, dtype=first.dtype, meta=first[:0])


def with_own_rows(array: da.Array) -> da.Array:
    """Return a copy of what :func:`array_of_pieces` has made, and any other array as it is."""
    import dask.array as da

    if not array.name.startswith(_VIEWS):
        return array
    graph = {key: piece.copy() for key, piece in dict(array.__dask_graph__()).items()}
    return da.Array(graph, array.name, array.chunks, dtype=array.dtype, meta=meta_of(array))


def has_sparse_blocks(value: Any) -> bool:
    """Return whether a value is a sparse matrix, or a Dask array of them."""
    return is_sparse(meta_of(value))


def check_plain(what: str, value: Any) -> None:
    """Check that an array is dense and has no mask, as far as that is known before it is computed.

    Raises
    ------
    TypeError
        It is sparse, or masked.
    """
    check_unmasked(what, value)
    block = meta_of(value)
    if not (hasattr(block, "toarray") or hasattr(block, "todense")):
        return
    kind = type(block).__name__
    has, change = f"a {kind}, a sparse matrix", "Make it dense, X.toarray()"
    if block is not value:
        has, change = (
            f"chunks of {kind}, sparse matrices",
            "Make them dense, X.map_blocks(lambda rows: rows.toarray(), dtype=X.dtype)",
        )
    raise TypeError(
        f"{what} has {has}, and rows are dense arrays here. {change}. The models of dask_train.linear_model fit, "
        "predict and score sparse rows by their own methods."
    )


def check_unmasked(what: str, value: Any) -> None:
    """Check that an array has no mask, as far as that is known before it is computed.

    Raises
    ------
    TypeError
        It has.
    """
    if isinstance(meta_of(value), np.ma.MaskedArray):
        raise TypeError(f"{what} has a masked array, whose mask would be lost; fill it first, with .filled(value).")


def arrays_by_block(
    task: Callable[..., Any],
    choose: Callable[..., Any],
    *,
    name: str,
    model: Any,
    arrays: Sequence[da.Array],
    outputs: Sequence[Column],
) -> list[da.Array]:
    """Dask arrays of what ``task(model, place, *blocks)`` returns: one array, or a tuple of all, made by one task.

    Parameters
    ----------
    task
        Given the block's place in the array, ``(number,)``, however Dask puts tasks together; and the blocks as lists,
        nested as deep as there are axes besides that of rows.
    choose
        ``choose(place, outputs)`` gives one of the tuple; picklable by name.
    name
        Of the Dask array; tells it from all others.
    model
        A value, or a delayed one.
    arrays
        As :func:`with_whole_rows` gives them.
    outputs
        What each is.

    Returns
    -------
    list
        A Dask array ``(num_rows, *row_shape)`` for each output, with the chunks of rows of the first array.
    """
    import dask.array as da
    from dask.layers import ArrayBlockIdDep

    axes = iter(range(1, 1000))
    given = [model, None, ArrayBlockIdDep((arrays[0].chunks[0],)), (_ROWS,)]
    arguments = [part for array in arrays for part in (array, (_ROWS, *(next(axes) for _ in array.shape[1:])))]
    settings: dict[str, Any] = {"align_arrays": False, "concatenate": None}
    if len(outputs) == 1:
        return [_blockwise(task, [*given, *arguments], outputs[0], name, axes, settings)]
    together = da.blockwise(
        task, (_ROWS,), *given, *arguments, name=name, dtype=object, meta=np.empty(0, object), **settings
    )
    return [
        _blockwise(choose, [number, None, together, (_ROWS,)], output, f"{name}-{number}", axes, settings)
        for number, output in enumerate(outputs)
    ]


def _blockwise(
    task: Callable[..., Any], arguments: list[Any], output: Column, name: str, axes: Any, settings: Mapping[str, Any]
) -> da.Array:
    import dask.array as da

    new_axes = {next(axes): size for size in output.row_shape}
    return da.blockwise(
        task,
        (_ROWS, *new_axes),
        *arguments,
        name=name,
        dtype=np.dtype(output.dtype),
        meta=np.empty((0,) * (1 + len(new_axes)), output.dtype),
        new_axes=new_axes,
        **settings,
    )
