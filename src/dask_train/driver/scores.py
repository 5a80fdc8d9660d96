"""The scores of a run, followed through its handle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.driver.loop import Driver


class Scores:
    """The scores of a run as they come; made by :meth:`Run.scores`."""

    def __init__(self, run: object, driver: Driver) -> None:
        self._run = run  # held: a run without references is stopped
        self._driver = driver

    def __repr__(self) -> str:
        """Show how many have come, and the last one."""
        scores = self._driver.history.scores
        last = f", the last one {scores[-1]}" if scores else ""
        return f"<Scores: {len(scores)} so far{last}; iterate to follow them>"

    async def _more(self, seen: int) -> list[dict[str, Any]]:
        """Return what has come since, as soon as there is something; nothing when the run is over."""
        scores = self._driver.history.scores
        with self._driver.awaited():
            await self._driver.until(lambda: len(scores) > seen or self._driver.over)
        return scores[seen:]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        seen = 0
        while more := self._next(seen):
            yield from more
            seen += len(more)

    @frees_its_thread
    def _next(self, seen: int) -> list[dict[str, Any]]:
        more: list[dict[str, Any]] = self._driver.peer.run(self._more, seen)
        return more

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        seen = 0
        while more := await self._more(seen):
            for score in more:
                yield score
            seen += len(more)
