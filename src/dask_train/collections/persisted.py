"""What of a collection lies in Dask's memory already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dask_train.compat.dask import meta_of
from dask_train.data.sparse_rows import is_sparse


def is_future(value: Any) -> bool:
    """Return whether it stands for something in a cluster.

    Told by its class's name, since distributed is not imported.
    """
    return any(kind.__name__ == "Future" and kind.__module__.startswith("distributed") for kind in type(value).__mro__)


def future_layers(graph: Any) -> set[str]:
    """Return the layers of a graph in which there are futures; a graph without layers is one, named ''."""
    if not hasattr(graph, "layers"):
        return {""} if _any_future(graph) else set()
    # Only layers that were written out as dicts can hold any, and the others should not be written out here.
    layers = ((name, getattr(layer, "mapping", None)) for name, layer in graph.layers.items())
    return {str(name) for name, mapping in layers if mapping is not None and _any_future(mapping)}


def array_persisted_nbytes(arrays: Iterable[Any]) -> int | None:
    """Bytes of the arrays that are persisted as they are, each counted once; None if that is unknown."""
    total = 0
    for array in {array.name: array for array in arrays}.values():
        layers = future_layers(array.__dask_graph__())
        if layers and (layers != {array.name} or array.nbytes != array.nbytes or is_sparse(meta_of(array))):
            return None
        total += int(array.nbytes) if layers else 0
    return total


def delayed_persisted_nbytes(values: Iterable[Any]) -> int | None:
    """0 if all are lazy, else None: what a future holds is not known here."""
    return None if any(future_layers(value.__dask_graph__()) for value in values) else 0


def frame_persisted_nbytes(frames: Iterable[Any]) -> int | None:
    """0 if all are lazy, else None: a frame does not know its rows."""
    operands = (operand for frame in frames for expr in frame.expr.walk() for operand in expr.operands)
    return None if any(map(_holds_future, operands)) else 0


def _holds_future(operand: Any) -> bool:
    if isinstance(operand, Mapping):
        return _any_future(operand)
    if type(operand).__module__.startswith("dask.delayed"):
        return bool(future_layers(operand.__dask_graph__()))
    return is_future(operand)


def _any_future(mapping: Mapping[Any, Any]) -> bool:
    return any(map(is_future, mapping.values()))
