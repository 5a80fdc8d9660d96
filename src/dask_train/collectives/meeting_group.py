"""What ranks do that meet again where one was lost, or another number of them continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from dask_train.collectives.calls import Calls
from dask_train.collectives.formation import Formation, ReplacingRun, State
from dask_train.collectives.handover import NO_BORDER, CallPosition, Handover, NoSuccessorError
from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.mirror import Mirrors
from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.ring import Ring
from dask_train.collectives.shared_memory import SharedMemory, SumBuffer
from dask_train.errors import DaskTrainError


class OthersAheadError(Exception):
    """Others have completed the call in hand, and wait in the number to come."""


class MeetingGroup(ProcessGroup):
    """Base of a group that meets again: what ranks tell each other then, and continue with.

    Parameters
    ----------
    run, formation, timeout_s, begins_later
        As of :class:`~dask_train.collectives.replaceable.ReplaceableGroup`.
    """

    def __init__(
        self, run: ReplacingRun, formation: Formation, timeout_s: float, *, begins_later: bool = False
    ) -> None:
        super().__init__(formation.hosts, formation.rank, formation.memory, formation.across, timeout_s)
        self._ring: Ring | None = formation.across
        self._attempts = formation.attempts
        self._run, self._calls, self._begins_later = run, Calls(), begins_later
        self._border: int | None = None
        self._num_mirrored = self.size  # ranks that have a mirror at the border; others join there
        self._mirrored: dict[int, bytes | None] = {}  # the last two
        self._has_met = True  # whether no call was made since the ranks have met
        self._or_size = 0  # the number in which others may have met that have completed the call in hand; 0 for none
        self._others: Formation | None = None  # as they have, with this rank
        self._to_pass: set[int] = set()  # borders whose mirrors go to the next host in the call in hand
        self._is_loose = False  # whether hosts could come through the call in hand before others have begun it
        self._give: Callable[[], Any] = lambda: None
        self._is_inside = self._has_begun = self._is_checked = False  # calls are checked once a rank was replaced
        self.received: State | None = None
        self._most_hosts = 1
        self._placed: set[int] = set()
        self._held: list[SumBuffer] = []  # an id is taken by no other one while its owner lives
        self._mirrors = Mirrors(self._memory)
        self._left: list[SharedMemory] = []  # since all have come together last: what the lost have left is there

    def _join(self, formation: Formation) -> None:
        try:
            self._take_up(formation)
        except PeerLostError:
            self._meet_again()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False

    def _met(self, size: int) -> Formation:
        try:
            return self._run.form(size, self._or_size)
        except (DaskTrainError, ValueError, OSError) as error:
            self._run.start_all_again(f"workers could not meet again: {error}")

    def _meet_again(self, size: int = 0) -> None:
        """Meet until no rank is lost meanwhile. Default of ``size``: as many as before.

        Raises
        ------
        OthersAheadError
            Others have met in the number to come, with this rank, which is to come to its border first.
        """
        while True:
            formation, self._others = self._others, None
            if formation is None:
                self._memory.leave()  # else one that waits here for this rank, and not for the lost one, would wait on
                self._leave_ring()
                formation = self._met(size or self.size)
            if self._or_size and len(formation.hosts.addresses) == self._or_size:
                self._others = formation
                raise OthersAheadError
            with suppress(PeerLostError):
                self._take_up(formation)
                return

    def _leave_ring(self) -> None:
        if self._ring is not None:
            self._ring.close()
        self._ring = self._across = None

    def _take_up(self, formation: Formation) -> None:
        """Continue in new memory, where newcomers get the state of those whose place they take."""
        if formation.memory is not self._memory:
            self._left.append(self._memory)
            self._memory, self._attempts, hosts = formation.memory, formation.attempts, formation.hosts
            self._ring = self._across = formation.across
            self.size, self._groups, self._group = len(hosts.addresses), hosts.groups, hosts.group_of(self.rank)
        self._channels.clear()
        self._placed.clear()
        self._held.clear()
        self._mirrors = Mirrors(self._memory)
        for border, own in self._mirrored.items():
            self._mirrors.put(self.rank, border, own)
        with self._inside():
            self._to_pass, self._is_loose = set(), False
            handed = self._handed_over()
            if not self._has_begun and handed.border != NO_BORDER:
                self._mirrors.put(self.rank, handed.border, handed.own(self.rank))  # None of one that joins
            self._wait()
            if handed.border != NO_BORDER:
                self._to_pass = {handed.border, handed.border + 1}  # who is ahead has mirrored the next one as well
            self._over_hosts(lambda _: self._all_hosts_come())
        self._adopt(handed)  # not before all have come so far
        for memory in self._left:
            memory.close()
        self._left.clear()

    def _handed_over(self) -> Handover:
        """Return what ranks continue with; all call it."""
        border = NO_BORDER if self._border is None else self._border
        calls = self._calls
        at = (border, calls.completed, calls.number, calls.is_whole)
        have = self._is_checked, self._num_mirrored, self._begins_later, max(self._most_hosts, self.num_hosts)
        mine = CallPosition(not self._has_begun, *at, *have)
        handover = Handover([CallPosition.of(row) for row in self._gathered("at", mine.row)])
        if self._has_begun and handover.border == NO_BORDER:
            self._run.start_all_again("a worker was lost before the first step")
        if handover.is_lost:
            self._run.start_all_again("all workers that had trained were lost before any other had their state")
        if not handover.is_needed:
            return handover
        try:
            handover.check()
            mirrors = [Mirrors(memory) for memory in (self._memory, *reversed(self._left))]
            has = handover.found_in(mirrors)
            everyones = self._gathered("mirrors", np.array([[rank in has for rank in range(self.size)]], np.int64))
            needed = range(min(self.size, handover.num_mirrored)) if self._has_begun else ()
            mine_given = handover.given(self.rank, has, np.array(everyones), needed, self._give, calls)
        except NoSuccessorError as error:
            self._run.start_all_again(str(error))
        handover.take(self._gathered("state", np.frombuffer(mine_given, np.uint8)).tobytes())
        return handover

    def _gathered(self, key: str, rows: np.ndarray) -> np.ndarray:
        (gathered,) = super().gather(key, [rows])
        return gathered

    def _adopt(self, handed: Handover) -> None:
        """Continue with what was handed over, once all have it."""
        is_new, self._has_begun = not self._has_begun, True
        self._is_checked, self._has_met, self._most_hosts = handed.is_checked, True, handed.most_hosts
        if not handed.is_needed:
            return
        if is_new:
            self.received = State(handed.border, handed.shared, handed.own(self.rank))
            self._border, self._mirrored = handed.border, {handed.border: handed.own(self.rank)}
            self._calls.go_through(handed.completed, handed.last, handed.answers)
        elif self._calls.completed < handed.completed:
            assert handed.last is not None
            self._calls.go_through(handed.completed, handed.last, [handed.last])

    def _all_hosts_come(self) -> None:
        assert self._ring is not None
        self._ring.meet()

    def close(self) -> None:
        """Release the memory, and leave the ring."""
        self._leave_ring()
        if self._others is not None and self._others.across is not None:
            self._others.across.close()
        for memory in (*self._left, *([] if self._others is None else [self._others.memory])):
            memory.close()
        super().close()
