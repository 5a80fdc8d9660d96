"""A list of delayed results as a source: each is a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from dask import delayed
from dask.delayed import Delayed

from dask_train.collections.partition.form import Picks
from dask_train.collections.persisted import delayed_persisted_nbytes
from dask_train.collections.pickled import carried
from dask_train.collections.source import Source

# In keys of what the tasks of all partitions take.
_FOR_ALL = "for-all-partitions-"


@dataclass(frozen=True, kw_only=True)
class DelayedSource(Source):
    """Partitions that are unknown until they are computed; the first one's form is that of all.

    Attributes
    ----------
    what
        How errors call it.
    values
        Delayed results: each a tuple, a dict, an array or a frame of pandas.
    picks
        As :func:`dask_train.collections.check_data` takes them.
    id
        In the key of what all partitions have to be like.
    """

    what: str
    values: tuple[Any, ...]
    picks: Picks | None
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def persisted_nbytes(self) -> int | None:
        return delayed_persisted_nbytes(self.values)

    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        plan = self._plan(part)
        make = delayed(carried(part, finish), pure=False)
        return [make(plan, number, value) for number, value in enumerate(self.values)]

    def delayed_form(self, part: Callable[..., Any]) -> Any | None:
        if self.picks is not None:
            return None
        plan = self._plan(part)
        return delayed(tuple, pure=False)([plan["names"], plan["is_tuple"]])

    def delayed_for_all(self, part: Callable[..., Any]) -> list[Any]:
        plan = self._plan(part)
        graph = plan.__dask_graph__()
        keys = [key for key in dict(graph) if str(key).startswith(_FOR_ALL)]
        return [plan, *(Delayed(key, graph) for key in keys)]

    def _plan(self, part: Callable[..., Any]) -> Any:
        """Return what all partitions have to be like; under the same key each time it is asked for."""
        wanted = {"what": self.what, "picks": self.picks}
        first = self.values[0]
        return delayed(carried(part, None, wanted))(0, first, dask_key_name=f"form-{self.id}")


def for_all(function: Callable[..., Any], *args: Any) -> Any:
    """Return the delayed result of a function which the tasks of all partitions take; a stream keeps it for them."""
    return delayed(function, pure=False)(*args, dask_key_name=f"{_FOR_ALL}{uuid4().hex}")


def are_parts(data: Any) -> bool:
    """Return whether data is a list of delayed results, each of which is a partition."""
    return isinstance(data, list) and bool(data) and all(isinstance(part, Delayed) for part in data)


def delayed_source(what: str, values: Sequence[Any], picks: Picks | None) -> Source:
    """Return a list of delayed results; nothing is computed."""
    is_tuple = picks is not None and picks["is_tuple"]
    return DelayedSource(names=None, is_tuple=is_tuple, what=what, values=tuple(values), picks=picks)
