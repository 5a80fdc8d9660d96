"""Any function as a place for scores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dask_train.logging.base import Ending, Logger, Score, Sink, Start


class FunctionLogger(Logger):
    """Calls a function with every score, as a dict of its own."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self.place = f"the function {getattr(function, '__name__', function)!s}"

    def open(self, start: Start, parent: Sink | None) -> Sink:  # noqa: ARG002 - scores name their trials
        """See :meth:`Logger.open`."""
        return _Calls(self._function)


class _Calls(Sink):
    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._pending = deque[Score]()

    def write(self, scores: Sequence[Score]) -> None:
        self._pending += scores
        while self._pending:
            self._function(dict(self._pending[0]))
            self._pending.popleft()

    def end(self, ending: Ending) -> None:
        """Do nothing: a function hears scores alone."""

    def keep(self, files: Sequence[Path]) -> None:
        """Do nothing, as at the end."""
