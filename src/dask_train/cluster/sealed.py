"""Functions of ours as tasks of a user's graph, which the scheduler reads, and which may have no dask-train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from dask.utils import funcname

from dask_train.cluster import sealed_task as sealed
from dask_train.cluster.by_value import ByValue


class Sealed(ByValue):
    """A function, perhaps a partial one, that is opened by the Dask worker that calls it.

    Parameters
    ----------
    function
        With positional arguments only. It and what it is bound to are pickled now.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._pickled_function = cloudpickle.dumps(function)
        super().__init__(sealed.SealedTask(funcname(function), self._pickled_function), sealed)

    def __dask_tokenize__(self) -> tuple[str, bytes]:
        return "dask_train.Sealed", self._pickled_function
