"""What ranks tell each other when they meet after a loss: how far each is, and what those need that are behind."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_train.collectives.calls import Answer, Calls
from dask_train.collectives.mirror import Mirrors

NO_BORDER = -1


class NoSuccessorError(Exception):
    """A lost rank can't be replaced in place: all have to start again."""


class CallPosition(NamedTuple):
    """How far a rank is.

    Attributes
    ----------
    is_new
        Whether it has no state yet, as one that takes the place of a lost one, or joins, and all at the start.
    border
        The last one; :data:`NO_BORDER` if it has not come to any.
    completed, number, is_whole
        As of :class:`~dask_train.collectives.calls.Calls`.
    is_checked
        Whether calls are compared before they are made.
    num_mirrored
        Ranks that have a mirror at the border, which others join there; too many in one that has come since.
    begins_later
        Whether it was not there at the start.
    most_hosts
        On how many hosts at most the ranks have been, as far as it knows.
    """

    is_new: bool
    border: int
    completed: int
    number: int
    is_whole: bool
    is_checked: bool
    num_mirrored: int
    begins_later: bool
    most_hosts: int

    @classmethod
    def of(cls, row: np.ndarray) -> CallPosition:
        """Return what :attr:`row` was made of."""
        is_new, border, completed, number, is_whole, is_checked, num_mirrored, later, hosts = row.tolist()
        flags = bool(is_whole), bool(is_checked)
        return cls(bool(is_new), border, completed, number, *flags, num_mirrored, bool(later), hosts)

    @property
    def row(self) -> np.ndarray:
        """Return the numbers, int64 ``(1, 9)``, as ranks gather them."""
        return np.array([self], np.int64)


class Handover:
    """What ranks continue with, of which some are new, and others may be a call behind.

    Parameters
    ----------
    positions
        Of all ranks.

    Attributes
    ----------
    border, completed
        Of the ranks that are ahead.
    num_mirrored
        Ranks whose mirror there has to be: those that join have none before a call has confirmed it.
    is_needed
        Whether any rank needs anything.
    is_lost
        Whether nobody has a state, and it is not the start.
    is_checked
        Whether calls are compared from now on.
    most_hosts
        On how many hosts at most the ranks have been.
    shared, answers, last
        What all ranks have at the border, what calls since then came to, and the last call of all; once
        :meth:`take` was called.
    """

    def __init__(self, positions: Sequence[CallPosition]) -> None:
        have = [rank for rank, at in enumerate(positions) if not at.is_new]
        self._positions, self._have = positions, have
        self._lack = [rank for rank in range(len(positions)) if rank not in have] if have else []
        self.completed = max((positions[rank].completed for rank in have), default=0)
        self._ahead = [rank for rank in have if positions[rank].completed == self.completed]
        self.border = positions[self._ahead[0]].border if have else NO_BORDER
        self.num_mirrored = min((positions[rank].num_mirrored for rank in self._ahead), default=0)
        self.is_needed = bool(self._lack) or len(self._ahead) < len(have)
        self.is_lost = all(at.is_new and at.begins_later for at in positions)
        self.is_checked = self.is_needed or any(at.is_checked for at in positions)
        self.most_hosts = max(at.most_hosts for at in positions)
        self.shared: Any = None
        self.answers: list[Answer] = []
        self.last: Answer | None = None
        self._own: dict[int, bytes] = {}

    def check(self) -> None:
        """Check that those that are left can continue together.

        Raises
        ------
        NoSuccessorError
            They can't.
        """
        first, *others = (self._positions[rank] for rank in self._ahead)
        behind = {self._positions[rank].completed for rank in self._have} - {self.completed}
        if any(at.border != first.border or at.number != first.number for at in others) or behind - {
            self.completed - 1
        }:
            raise NoSuccessorError("the workers that are left are not at one place")
        if self._lack and not all(self._positions[rank].is_whole for rank in self._ahead):
            raise NoSuccessorError("the workers that are left have no room for the results since the last step")

    def found_in(self, mirrors: Sequence[Mirrors]) -> dict[int, bytes]:
        """Return those of newcomers' mirrors, by rank, that lie in the memory of this rank's host, or did."""
        found = {}
        for rank in self._lack:
            states = (each.read(rank, self.border) for each in mirrors)
            if (state := next((state for state in states if state is not None), None)) is not None:
                found[rank] = state
        return found

    def given(
        self,
        rank: int,
        mirrors: dict[int, bytes],
        who_has: np.ndarray,
        needed: Collection[int],
        give: Callable[[], Any],
        calls: Calls,
    ) -> bytes:
        """Return what one rank gives to the others, pickled, which may be nothing.

        Parameters
        ----------
        rank
            Number of the rank that gives.
        mirrors
            Mirrors of newcomers that this rank has, as :meth:`found_in` returns them.
        who_has
            ``(ranks, ranks)``, int: row ``i`` tells with 1 whose mirrors rank ``i`` has.
        needed
            Ranks whose mirror there has to be.
        give, calls
            Function that returns what all ranks have, and calls of this rank.

        Raises
        ------
        NoSuccessorError
            What was a lost rank's own is nowhere.
        """
        parts: list[bytes] = []
        if rank == self._ahead[0]:
            answers = calls.told() if self._lack else []
            shared = give() if self._lack else None
            parts.append(pickle.dumps((shared, answers, calls.last()), protocol=5))
        for lost in self._lack:
            holders = np.flatnonzero(who_has[:, lost])
            if not len(holders) and lost in needed:
                raise NoSuccessorError(f"what was worker {lost}'s own is not in its mirror")
            if len(holders) and holders[0] == rank:
                parts.append(pickle.dumps((lost, mirrors[lost]), protocol=5))
        return b"".join(parts)

    def take(self, everyones: bytes) -> None:
        """Take over what all ranks have given."""
        for given in _pickled(everyones):
            if len(given) == 2:
                rank, state = given
                self._own[rank] = state
            else:
                self.shared, self.answers, self.last = given

    def own(self, rank: int) -> bytes | None:
        """Return what was a newcomer's own; None if it comes in no one's place."""
        return self._own.get(rank)


def _pickled(data: bytes) -> Iterator[Any]:
    file = io.BytesIO(data)
    while file.tell() < len(data):
        yield pickle.load(file)  # noqa: S301 - of workers of this run
