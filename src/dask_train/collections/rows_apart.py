"""Rows that a graph itself holds, apart from it: its tasks open them from elsewhere, and travel without them.

``da.from_array`` of a NumPy array and ``dd.from_pandas`` put the rows into the tasks, which the client sends through
the scheduler, and which that keeps.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from dask.core import reverse_dict
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof
from dask.utils import parse_bytes

from dask_train.compat.dask_graphs import DataNode, GraphNode, Task, TaskRef, convert_legacy_graph, cull

# Rows that come to less in all stay in the graph: to open them from elsewhere takes longer.
LEAST_BYTES = parse_bytes("1 MiB")
# So does an array or a frame that is smaller, and is no more than the task around it.
LEAST_ARRAY_BYTES = parse_bytes("4 KiB")

# What becomes of a task without its rows: given its pickle, in which rows are numbers, the keys that it needs, and what
# these give, it returns what the task does.
Open = Callable[..., Any]


@dataclass(frozen=True)
class Apart:
    """Delayed values, and the rows that their graph holds.

    Attributes
    ----------
    rows
        Arrays and frames, each once, as the user has them.
    """

    rows: Sequence[Any]
    _keys: Sequence[Hashable]
    _graph: Mapping[Hashable, GraphNode]

    def delayed(self, opened: Open) -> list[Delayed]:
        """Return the same values, whose tasks have ``opened`` in place of rows.

        All tasks that depend on rows get new keys but the values themselves: those of the same array in another graph
        open it from elsewhere.
        """
        numbers = {id(value): number for number, value in enumerate(self.rows)}
        holders = {key: node for key, node in self._graph.items() if _holds_rows(node)}
        own = f"-{uuid4().hex}"
        names = {key: _renamed(key, own) for key in self._after(holders).difference(self._keys)}
        graph = {}
        for key, node in self._graph.items():
            new = names.get(key, key)
            if key in holders:
                needs = sorted(node.dependencies, key=str)
                refs = (TaskRef(names.get(need, need)) for need in needs)
                graph[new] = Task(new, opened, _pickled(node, numbers), needs, *refs)
            else:
                graph[new] = node.substitute(names, key=new)
        return [_delayed(key, cull(graph, {key}), f"rows-apart-{number}{own}") for number, key in enumerate(self._keys)]

    def _after(self, keys: Iterable[Hashable]) -> set[Hashable]:
        """Find some tasks, and all that depend on them."""
        dependents = reverse_dict({key: node.dependencies for key, node in self._graph.items()})
        reached, left = set[Hashable](), list(keys)
        while left:
            key = left.pop()
            if key not in reached:
                reached.add(key)
                left += dependents.get(key, ())
        return reached


def apart(values: Sequence[Delayed]) -> Apart | None:
    """Find the rows that the graph of delayed values holds; None if they are few, or there are none."""
    graphs = [value.__dask_graph__() for value in values]
    # Only layers that are written out as dicts hold any; several graphs may have the same ones.
    layers = {id(mapping): mapping for graph in graphs for mapping in _written_out(graph)}
    if not any(_holds_rows(node) for mapping in layers.values() for node in mapping.values()):
        return None
    whole: dict[Hashable, Any] = convert_legacy_graph(HighLevelGraph.merge(*graphs).to_dict())
    nodes = {key: node if isinstance(node, GraphNode) else DataNode(key, node) for key, node in whole.items()}
    keys = [value.key for value in values]
    needed = _together(cull(nodes, set(keys)), set(keys))
    rows = {id(value): value for node in needed.values() for value in _rows_in(node)}
    if sum(_nbytes(value) for value in rows.values()) < LEAST_BYTES:
        return None
    return Apart(list(rows.values()), keys, needed)


def _together(graph: Mapping[Hashable, GraphNode], keys: set[Hashable]) -> dict[Hashable, GraphNode]:
    """Put rows that one task alone uses into it: what is opened there does not lie in Dask's memory besides."""
    dependents = reverse_dict({key: node.dependencies for key, node in graph.items()})
    alone = {
        key
        for key, node in graph.items()
        if isinstance(node, DataNode) and key not in keys and len(dependents[key]) == 1 and _holds_rows(node)
    }
    fused = {}
    for key, node in graph.items():
        if key not in alone:
            its = [graph[need] for need in node.dependencies if need in alone]
            fused[key] = GraphNode.fuse(node, *its) if its else node
    return fused


def opened_task(pickled: bytes, needs: Sequence[Hashable], values: Sequence[Any], rows: Callable[[int], Any]) -> Any:
    """Return what a task returns whose rows are apart.

    Parameters
    ----------
    rows
        Gives the rows of a number.
    """
    return _Opening(pickled, rows).load()(dict(zip(needs, values, strict=True)))


def _written_out(graph: Any) -> Iterator[Mapping[Hashable, Any]]:
    for layer in graph.layers.values() if hasattr(graph, "layers") else [graph]:
        if isinstance(mapping := getattr(layer, "mapping", layer), dict):
            yield mapping


def _rows_in(value: Any) -> Iterator[Any]:
    """Arrays and frames in a task, in whatever containers."""
    if _nbytes(value) >= LEAST_ARRAY_BYTES:
        yield value
    elif isinstance(value, Task):
        for each in (*value.args, *value.kwargs.values()):
            yield from _rows_in(each)
    elif isinstance(value, DataNode):
        yield from _rows_in(value.value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _rows_in(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _rows_in(each)


def _holds_rows(value: Any) -> bool:
    return next(_rows_in(value), None) is not None


def _nbytes(value: Any) -> int:
    """Bytes of an array, a frame or a sparse matrix; 0 of anything else."""
    kind = type(value)
    if hasattr(kind, "tocsr"):  # Dask's sizeof knows matrices of SciPy, and not its arrays
        return sum(each.nbytes for each in vars(value).values() if isinstance(each, np.ndarray))
    if isinstance(value, np.ndarray) or hasattr(kind, "iloc"):
        return int(sizeof(value))
    return 0


def _delayed(key: Hashable, graph: Mapping[Hashable, GraphNode], layer: str) -> Delayed:
    """Make a delayed value whose graph has just what it needs: some values may be computed without the others."""
    return Delayed(key, HighLevelGraph.from_collections(layer, graph, dependencies=()), layer=layer)


def _renamed(key: Any, own: str) -> Any:
    return (f"{key[0]}{own}", *key[1:]) if isinstance(key, tuple) else f"{key}{own}"


def _pickled(node: GraphNode, numbers: Mapping[int, int]) -> bytes:
    with io.BytesIO() as file:
        _Taking(file, numbers).dump(node)
        return file.getvalue()


class _Taking(cloudpickle.Pickler):
    """Pickles a task, and a number in place of each array or frame that has one."""

    def __init__(self, file: io.BytesIO, numbers: Mapping[int, int]) -> None:
        super().__init__(file, protocol=5)
        self._numbers = numbers

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value))


class _Opening(pickle.Unpickler):
    def __init__(self, pickled: bytes, rows: Callable[[int], Any]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._rows = rows

    def persistent_load(self, number: int) -> Any:
        return self._rows(number)
