"""The results of collective calls since a border, with which a newcomer repeats them alone until it has caught up."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from dask_train.collectives.shared_memory import SumBuffer

# Most bytes of results that are kept, besides those in channels. With more, no rank is replaced until the next border.
MOST_BYTES = 64 << 20

Answer = tuple[str, list[np.ndarray]]


@dataclass
class _Call:
    """A call, and what it came to; in a channel's memory, until that is used again."""

    text: str
    results: list[np.ndarray]
    channel: Hashable


class Calls:
    """Calls since the last border, on a rank that has made them, or is to go through them once more.

    Attributes
    ----------
    completed
        How many all ranks have made since the beginning, as far as this rank knows. Between hosts one may be a call
        ahead of another.
    number
        How many there were since the border.
    is_whole
        Whether the results of all of these are still there.
    """

    def __init__(self) -> None:
        self._made: list[_Call] = []
        self._last: _Call | None = None  # also where a border has come since
        self._to_answer: list[Answer] = []
        self.completed, self.number, self._bytes = 0, 0, 0

    @property
    def is_whole(self) -> bool:
        """Return whether the results of all calls are still there."""
        return len(self._made) == self.number

    @property
    def answers(self) -> bool:
        """Return whether the others have made the next call already."""
        return bool(self._to_answer)

    def begin_again(self) -> None:
        """Forget all but the last: this is a border."""
        self._made, self.number, self._bytes = [], 0, 0

    def used(self, channel: SumBuffer) -> None:
        """Copy what lies in a channel's memory, which is used again now."""
        for call in self._made:
            if call.channel is channel:
                call.results, call.channel = [array.copy() for array in call.results], None
                self._count(call.results)
        if self._last is not None and self._last.channel is channel:
            self._last = _Call(self._last.text, [array.copy() for array in self._last.results], None)

    def made(self, text: str, results: Sequence[np.ndarray], channel: SumBuffer | None = None) -> None:
        """Keep what a call came to: where it lies in a channel, or as a copy, as its caller may change it."""
        self.completed += 1
        self._keep(text, results, channel)

    def _keep(self, text: str, results: Sequence[np.ndarray], channel: SumBuffer | None = None) -> None:
        kept = list(results) if channel is not None else [array.copy() for array in results]
        self.number += 1
        self._last = _Call(text, kept, channel)
        if self.number > len(self._made) + 1:
            return
        self._made.append(self._last)
        if channel is None:
            self._count(kept)

    def _count(self, arrays: Sequence[np.ndarray]) -> None:
        self._bytes += sum(array.nbytes for array in arrays)
        if self._bytes > MOST_BYTES:
            self._made.clear()

    def told(self) -> list[Answer]:
        """Return all, for a newcomer."""
        return [(call.text, call.results) for call in self._made]

    def last(self) -> Answer | None:
        """Return the last one, for a rank that has not come to its end; None if there was none."""
        return None if self._last is None else (self._last.text, self._last.results)

    def go_through(self, completed: int, last: Answer | None, answers: Sequence[Answer]) -> None:
        """Answer the next calls with these results, of a rank that has completed so many, with this last one."""
        self.completed, self._to_answer = completed, list(answers)
        if last is not None:
            self._last = _Call(*last, None)

    def answer(self, text: str) -> list[np.ndarray]:
        """Return what the next call came to.

        Raises
        ------
        ValueError
            The others have made another one.
        """
        theirs, results = self._to_answer.pop(0)
        if theirs != text:
            raise ValueError(f"it makes {text} where the others have made {theirs}")
        self._keep(text, results)
        return results
