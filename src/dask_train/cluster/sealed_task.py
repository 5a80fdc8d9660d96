"""A task of ours that is opened where it runs: the scheduler, which reads graphs, needs no dask-train for it.

Travels by value (``dask_train.cluster.by_value.ByValue``), and imports nothing of ours.
"""

from __future__ import annotations

from typing import Any

import cloudpickle  # type: ignore[import-untyped]


class SealedTask:
    """A function that was pickled; called as that.

    Parameters
    ----------
    name
        As Dask calls its keys.
    pickled
        The function.
    """

    def __init__(self, name: str, pickled: bytes) -> None:
        self.__name__, self._pickled = name, pickled

    def __call__(self, *args: Any) -> Any:
        """Return what the function returns; opened each time, which takes some 50 µs."""
        return cloudpickle.loads(self._pickled)(*args)
