"""A group in which a lost rank is replaced while the others wait: they meet again, and make the interrupted call again.

See ``docs/design/0020-replacement-in-place.md``.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dask_train.collectives.formation import Formation, ReplacingRun
from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.meeting_group import MeetingGroup, OthersAheadError
from dask_train.collectives.mirror import Mirrors
from dask_train.collectives.process_group import InterHostSum
from dask_train.collectives.share_sums import ShareBuffer
from dask_train.collectives.shared_memory import SumBuffer

# How often a rank that waits looks whether another one was lost.
_LOOK_S = 0.02
_CONFIRM = "confirm"


class ReplaceableGroup(MeetingGroup):
    """The ranks of a run that agree at every step, where a lost rank is replaced in place, and others may join.

    The trainer marks borders: places between two calls at which the state of all ranks is known. Between two borders
    only what is a rank's own may change.

    No rank completes a call before all have begun it, also over hosts. So a rank is at most one call ahead of another.

    Parameters
    ----------
    run
        How ranks meet again, and learn of losses.
    formation
        The ranks as they have met.
    timeout_s
        How long one may wait for the others, in seconds.
    begins_later
        Whether this rank takes the place of a lost one, or joins. Default: false.

    Attributes
    ----------
    received
        The state from which this rank continues in place of a lost one, or as one that has joined; None for one that
        begins as all others do.
    """

    _look_s = _LOOK_S

    def __init__(
        self, run: ReplacingRun, formation: Formation, timeout_s: float, *, begins_later: bool = False
    ) -> None:
        super().__init__(run, formation, timeout_s, begins_later=begins_later)
        self._unconfirmed: set[int] = set()  # borders that were mirrored since the last call
        try:
            self._join(formation)
        except BaseException:
            self.close()
            raise

    # What the trainer tells

    def mirror(self, border: int, own: bytes | None) -> None:
        """Write what is this rank's own at the next border, before the last call that leads to it.

        Parameters
        ----------
        border
            Its number; each is one more than the last.
        own
            None if it can't be mirrored: then a loss of this rank is one of all.
        """
        self._mirrored = {number: kept for number, kept in self._mirrored.items() if number >= border - 1}
        self._mirrored[border] = own
        self._mirrors.put(self.rank, border, own)
        self._unconfirmed.add(border)

    def border(self, number: int, give: Callable[[], Any]) -> None:
        """Note that this rank's state is the one of this border; ``give`` returns what of it all ranks have."""
        self._border, self._give, self._num_mirrored = number, give, self.size
        self._unconfirmed.add(number)  # a rank may have replaced its mirror at the border; which, others don't know
        self._calls.begin_again()

    def confirm_last(self, size: int) -> None:
        """Wait until all have come here, for the last time before :meth:`meet_others`, or before this rank leaves.

        If this is interrupted, others may have completed it. They have left, or wait in the number to come, and do not
        come back. All mirrors are confirmed then, so this rank has completed it as well as soon as it meets them.

        Between hosts all mirrors go to all hosts here, as the next one may have only ranks that leave.
        """
        self._or_size = size
        try:
            self._made(_CONFIRM, partial(self._waited, self._give_all_hosts))
        except OthersAheadError:
            self._calls.made(_CONFIRM, [])
            self._unconfirmed.clear()
        finally:
            self._or_size = 0

    def meet_others(self, size: int) -> None:
        """Continue with that many ranks. Those that join get the state of the border, at which all are.

        Ranks from that number on have left, and do not call this. Channels that depend on the number are made anew by
        their owners.
        """
        self._calls.begin_again()
        self._meet_again(size)
        if self.size != size:  # not without a fault of ours: who has confirmed meets only others that have
            self._run.start_all_again(f"{self.size} workers have met where {size} were to continue")

    def confirm(self) -> None:
        """Wait until all have come here; those that have joined have mirrored the border as well."""
        self._made(_CONFIRM, self._waited)
        self._num_mirrored = self.size

    def _waited(self, give: Callable[[], None] = lambda: None) -> list[np.ndarray]:
        def come(_: InterHostSum) -> None:
            give()
            self._all_hosts_come()

        self._wait()
        self._over_hosts(come)
        return []

    def _give_all_hosts(self) -> None:
        """Give all hosts the mirrors of this one at the border to come."""
        assert self._ring is not None
        assert self._border is not None
        packed = Mirrors(self._memory).news(self._group, [self._border + 1])  # also what the next host has already
        for _ in range(self.num_hosts - 1):
            packed = self._ring.pass_on(packed)
            self._mirrors.put_packed(packed)

    # Calls, which are made again where they are interrupted

    def channel(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype | type | str,
        sections: Sequence[int] | None = None,
        *,
        rounds: bool = False,
    ) -> SumBuffer:
        """Return memory for sums, as :class:`ProcessGroup` does; it gets its room when all ranks first use it."""
        channel = SumBuffer(shapes, dtype, sections)
        channel.rounds = rounds
        if self._is_inside:
            self._use(channel)
        return channel

    def combine(
        self, channel: SumBuffer, arrays: Sequence[np.ndarray], how: np.ufunc, weight: float = 1.0
    ) -> list[np.ndarray]:
        """Return what ``how`` makes of all ranks' arrays, as of :class:`ProcessGroup`."""
        combine = super().combine

        def make() -> list[np.ndarray]:
            self._is_loose = not any(map(math.prod, channel.shapes))
            return combine(channel, arrays, how, weight)

        return self._made(f"{how.__name__} of {_told(channel)}", make, channel=channel)

    def sum_section(self, channel: SumBuffer, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the sum of some arrays of a channel, as of :class:`ProcessGroup`."""
        sum_section = super().sum_section
        text = f"sum of section {number} of {_told(channel)}"
        return self._made(text, lambda: sum_section(channel, number, arrays), channel=channel)

    def share_channel(
        self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype | type | str, num_shares: int
    ) -> ShareBuffer:
        """Return memory for sums over shares; as :meth:`channel`."""
        return ShareBuffer(shapes, dtype, num_shares)

    def sum_shares(self, channel: ShareBuffer, nodes: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Return the sum over all shares, as of :class:`ProcessGroup`."""
        self.stay_on_one_host("virtual_workers= is for workers of one host")
        sum_shares = super().sum_shares
        text = f"sum over shares of {_told(channel)}"
        return self._made(text, lambda: sum_shares(channel, nodes), channel=channel)

    def stay_on_one_host(self, why: str) -> None:
        """Let all start again if ranks are on several hosts, as where a lost one was replaced on another."""
        if self.num_hosts > 1:
            self._run.start_all_again(f"{why}, and a worker was replaced on another host")

    @property
    def most_hosts(self) -> int:
        """Return on how many hosts at most the ranks have been, at any time."""
        return self._most_hosts

    @property
    def may_sum_early(self) -> bool:
        """Return false: whether it pays is measured, and a newcomer has measured nothing."""
        return False

    def gather(self, key: Hashable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of all ranks, as of :class:`ProcessGroup`."""
        gather, kinds = super().gather, [(array.dtype.str, array.shape[1:]) for array in arrays]
        return self._made(f"gather of {kinds}", lambda: gather(key, arrays))

    def broadcast(self, channel: SumBuffer, arrays: Sequence[np.ndarray], root: int = 0) -> list[np.ndarray]:
        """Return the arrays of one rank, as of :class:`ProcessGroup`."""
        broadcast = super().broadcast

        def make() -> list[np.ndarray]:
            self._is_loose = True
            return broadcast(channel, arrays, root)

        return self._made(f"broadcast of {_told(channel)}", make, channel=channel)

    def exchange(
        self,
        channel: SumBuffer,
        mine: np.ndarray,
        places: Sequence[slice],
        look: Callable[[], object] = lambda: None,
    ) -> list[np.ndarray]:
        """Return what each rank has, as of :class:`ProcessGroup`. A copy is kept: others write without a wait."""
        exchange = super().exchange

        def make() -> list[np.ndarray]:
            self._use(channel)
            self._is_loose = any(all(_is_empty(places[rank]) for rank in group) for group in self._groups)
            return exchange(channel, mine, places, look)

        return self._made(f"exchange of {_told(channel)}", make)

    def begin_again(self, top: int = 0) -> None:
        """Do nothing: a group in which ranks are replaced trains one model."""

    def _made(
        self, text: str, make: Callable[[], list[np.ndarray]], *, channel: SumBuffer | None = None
    ) -> list[np.ndarray]:
        if self._is_inside:
            return make()
        while True:
            if self._calls.answers:
                return self._answered(text)
            try:
                self._leave_the_lost()
                with self._inside():
                    self._to_pass, self._is_loose = self._passed_on(), False
                    if self._is_checked:
                        self._check_alike(text)
                    if channel is not None:
                        self._calls.used(channel)
                        self._use(channel)
                    results = make()
            except PeerLostError:
                self._meet_again()
            else:
                self._calls.made(text, results, channel)
                self._unconfirmed.clear()
                self._has_met = False
                return results

    def _leave_the_lost(self) -> None:
        """Leave for a meeting if a rank counts as lost, also one that still comes to each call.

        No rank completes a call that this one has not begun, so all stay at most a call apart.
        """
        if any(self._run.lost_attempt(rank) >= attempt for rank, attempt in enumerate(self._attempts)):
            raise PeerLostError

    def _passed_on(self) -> set[int]:
        """Return which mirrors go to the next host in the call in hand; the same ones on all ranks.

        After a meeting that is all of them: a newcomer has not mirrored what others have.
        """
        if not self._has_met:
            return set(self._unconfirmed)
        return set() if self._border is None else {self._border, self._border + 1}

    def _answered(self, text: str) -> list[np.ndarray]:
        """Return what a call came to that others have made already."""
        try:
            results = self._calls.answer(text)
        except ValueError as error:
            self._run.start_all_again(f"rank {self.rank}, which takes a lost one's place, can't follow: {error}")
        self._unconfirmed.clear()
        return results

    def _over_hosts(self, do: Callable[[InterHostSum], None]) -> None:
        """Let the first rank of this host do its part with those of others, after it has passed mirrors on."""

        def passed(across: InterHostSum) -> None:
            assert self._ring is not None
            if borders := self._to_pass:
                self._to_pass = set()
                self._mirrors.put_packed(self._ring.pass_on(self._mirrors.news(self._group, borders)))
            if self._is_loose:
                self._is_loose = False
                self._ring.meet()
            do(across)

        super()._over_hosts(passed)

    def _check_alike(self, text: str) -> None:
        """Check that all ranks make the same call: a rank that took a lost one's place might have gone another way.

        The call that follows has a wait, so no rank writes here while another one still reads.
        """
        digest = zlib.crc32(f"{self._calls.number} {text}".encode())
        of_each = self._known("calls", "texts", partial(self.channel, [(self.size,)], np.int64))
        (digests,) = super().exchange(of_each, np.array([digest]), [slice(rank, rank + 1) for rank in range(self.size)])
        if (digests != digest).any():
            self._run.start_all_again(
                f"workers are at other calls than one that was replaced; rank {self.rank}: {text}"
            )

    def _use(self, channel: SumBuffer) -> None:
        if id(channel) not in self._placed:
            self._memory.make_room(channel)
            self._placed.add(id(channel))
            self._held.append(channel)

    # Losses

    def _look(self, place: int, started: float) -> None:
        """Leave the wait if the rank of that place is lost, or has left for another meeting, before it came here."""
        rank = self._group[place]
        is_lost = self._run.lost_attempt(rank) >= self._attempts[rank] or self._memory.has_left(place)
        if is_lost and not self._memory.wait_for(place, 0.0):  # looked at again: it may have come and then been lost
            raise PeerLostError
        super()._look(place, started)


def _is_empty(part: slice) -> bool:
    return bool(part.stop <= (part.start or 0))


def _told(channel: SumBuffer) -> str:
    return f"{channel.dtype} {channel.shapes}"
