"""A group in which a lost rank is replaced while the others wait: they meet again, and make the interrupted call again.

See ``docs/design/0020-replacement-in-place.md``.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np

from dask_train.collectives.calls import Answer, Calls
from dask_train.collectives.hosts import Hosts
from dask_train.collectives.mirror import Mirrors
from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.share_sums import ShareBuffer
from dask_train.collectives.shared_memory import SharedMemory, SumBuffer
from dask_train.errors import DaskTrainError

# How often a rank that waits looks whether another one was lost.
_LOOK_S = 0.02
_NO_STATE = -1


@dataclass(frozen=True, kw_only=True)
class Formation:
    """The ranks as they have met.

    Attributes
    ----------
    hosts, rank
        Where all are, and which this is.
    memory
        What the ranks of this host share.
    attempts
        By rank, which start of it has come.
    """

    hosts: Hosts
    rank: int
    memory: SharedMemory
    attempts: Sequence[int]


class ReplacingRun(Protocol):
    """The run, as a group sees it whose ranks are replaced."""

    def form(self, size: int = 0) -> Formation:
        """Meet all ranks, those that were replaced among them.

        Parameters
        ----------
        size
            How many they are to be; 0 for one that comes new, which meets the others.

        Raises
        ------
        DaskTrainError, ValueError
            They can't be met.
        """

    def lost_attempt(self, rank: int) -> int:
        """Return the last start of a rank whose process is gone; -1 where none is."""

    def start_all_again(self, why: str) -> NoReturn:
        """Let the run start all ranks again, and wait for the end of this process."""


@dataclass(frozen=True)
class State:
    """The state from which a newcomer continues.

    Attributes
    ----------
    border
        The number of the border.
    shared
        What all ranks have, from the function that :meth:`ReplaceableGroup.border` was given.
    own
        What was the lost rank's own there, as it was mirrored; None for one that comes in no one's place.
    """

    border: int
    shared: Any
    own: bytes | None


class PeerLostError(Exception):
    """Another rank is lost, and will not come to where this one waits."""


class ReplaceableGroup(ProcessGroup):
    """The ranks of one host that agree at every step, where a lost rank is replaced in place, and others may join.

    The trainer marks borders: places between two calls at which the state of all ranks is known. Between two borders
    only what is a rank's own may change.

    Parameters
    ----------
    run
        How ranks meet again, and learn of losses.
    formation
        The ranks as they have met, on one host.
    timeout_s
        How long one may wait for the others, in seconds.

    Attributes
    ----------
    received
        The state from which this rank continues in place of a lost one, or as one that has joined; None for one that
        begins as all others do.
    """

    _look_s = _LOOK_S

    def __init__(self, run: ReplacingRun, formation: Formation, timeout_s: float) -> None:
        super().__init__(formation.hosts, formation.rank, formation.memory, None, timeout_s)
        self._attempts = formation.attempts
        self._run, self._calls = run, Calls()
        self._border: int | None = None
        self._num_mirrored = self.size  # ranks that have a mirror at the border; others have joined there
        self._mirrored: dict[int, bytes | None] = {}  # the last two
        self._give: Callable[[], Any] = lambda: None
        self._is_inside = self._has_begun = self._is_checked = False  # calls are checked once a rank was replaced
        self.received: State | None = None
        self._placed: set[int] = set()
        self._held: list[SumBuffer] = []  # an id is taken by no other one while its owner lives
        self._mirrors = Mirrors(self._memory)
        self._old: SharedMemory | None = None
        try:
            self._take_up(formation)
        except PeerLostError:
            self._meet_again()

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
        self._mirrors.put(border, own)

    def border(self, number: int, give: Callable[[], Any]) -> None:
        """Note that this rank's state is the one of this border; ``give`` returns what of it all ranks have."""
        self._border, self._give, self._num_mirrored = number, give, self.size
        self._calls.begin_again()

    def meet_others(self, size: int) -> None:
        """Continue with that many ranks. Those that join get the state of the border, at which all are.

        Ranks from that number on have left, and do not call this. Channels that depend on the number are made anew by
        their owners.
        """
        self._calls.begin_again()
        self._meet_again(size)

    def confirm(self) -> None:
        """Wait until all have come here."""
        self._made("confirm", self._waited)

    def _waited(self) -> list[np.ndarray]:
        self._wait()
        return []

    # Calls, which are made again where they are interrupted

    def channel(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype | type | str,
        sections: Sequence[int] | None = None,
        *,
        rounds: bool = False,  # noqa: ARG002 - all ranks are on one host, where nothing is rounded
    ) -> SumBuffer:
        """Return memory for sums, as :class:`ProcessGroup` does; it gets its room when all ranks first use it."""
        channel = SumBuffer(shapes, dtype, sections)
        if self._is_inside:
            self._use(channel)
        return channel

    def combine(
        self, channel: SumBuffer, arrays: Sequence[np.ndarray], how: np.ufunc, weight: float = 1.0
    ) -> list[np.ndarray]:
        """Return what ``how`` makes of all ranks' arrays, as of :class:`ProcessGroup`."""
        combine = super().combine
        return self._made(
            f"{how.__name__} of {_told(channel)}", lambda: combine(channel, arrays, how, weight), channel=channel
        )

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
        sum_shares = super().sum_shares
        text = f"sum over shares of {_told(channel)}"
        return self._made(text, lambda: sum_shares(channel, nodes), channel=channel)

    def gather(self, key: Hashable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of all ranks, as of :class:`ProcessGroup`."""
        gather, kinds = super().gather, [(array.dtype.str, array.shape[1:]) for array in arrays]
        return self._made(f"gather of {kinds}", lambda: gather(key, arrays))

    def broadcast(self, channel: SumBuffer, arrays: Sequence[np.ndarray], root: int = 0) -> list[np.ndarray]:
        """Return the arrays of one rank, as of :class:`ProcessGroup`."""
        broadcast = super().broadcast
        return self._made(f"broadcast of {_told(channel)}", lambda: broadcast(channel, arrays, root), channel=channel)

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
            return exchange(channel, mine, places, look)

        return self._made(f"exchange of {_told(channel)}", make)

    def begin_again(self, top: int = 0) -> None:
        """Do nothing: a group in which ranks are replaced trains one model."""

    def _made(
        self, text: str, make: Callable[[], list[np.ndarray]], *, channel: SumBuffer | None = None
    ) -> list[np.ndarray]:
        if self._is_inside:
            return make()
        if self._calls.answers:
            try:
                return self._calls.answer(text)
            except ValueError as error:
                self._run.start_all_again(f"rank {self.rank}, which takes a lost one's place, can't follow: {error}")
        while True:
            try:
                with self._inside():
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
                return results

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

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False

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

    def _met(self, size: int) -> Formation:
        try:
            formation = self._run.form(size)
        except (DaskTrainError, ValueError, OSError) as error:
            self._run.start_all_again(f"workers could not meet again: {error}")
        if len(formation.hosts.groups) > 1:
            formation.memory.close()
            self._run.start_all_again("a worker can be replaced in place on one host only, and there are several")
        return formation

    def _meet_again(self, size: int = 0) -> None:
        """Meet until no rank is lost meanwhile. Default of ``size``: as many as before."""
        while True:
            self._memory.leave()  # else one that waits here for this rank, and not for the lost one, would wait on
            formation = self._met(size or self.size)
            with suppress(PeerLostError):
                self._take_up(formation)
                return

    def _take_up(self, formation: Formation) -> None:
        """Continue in new memory, where newcomers get the state of those whose place they take."""
        if self._old is None:
            self._old = self._memory  # the last one in which all had come together: what the lost have left is there
        if formation.memory is not self._memory:
            if self._memory is not self._old:
                self._memory.close()
            self._memory, self._attempts = formation.memory, formation.attempts
            hosts = formation.hosts
            self.size, self._groups, self._group = len(hosts.addresses), hosts.groups, hosts.group_of(self.rank)
        self._channels.clear()
        self._placed.clear()
        self._held.clear()
        self._mirrors = Mirrors(self._memory)
        for border, own in self._mirrored.items():
            self._mirrors.put(border, own)
        with self._inside():
            data = self._state_for_newcomers()
            if self._border is None and data is not None:
                state, calls = self._unpacked(data)
                self._mirrors.put(state.border, state.own)  # of one that joins: none before it has begun
            self._wait()
        if self._border is None and data is not None:  # not before all have come so far
            self.received, self._border, self._mirrored = state, state.border, {state.border: state.own}
            self._calls.go_through(calls)
        self._has_begun, self._is_checked = True, self._is_checked or data is not None
        if self._old is not self._memory:
            self._old.close()
        self._old = None

    def _state_for_newcomers(self) -> np.ndarray | None:
        """Return the state at the border, if some ranks have one and others need it."""
        border = _NO_STATE if self._border is None else self._border
        (positions,) = super().gather("at", [np.array([[border, self._calls.number, self._calls.is_whole]], np.int64)])
        have = [rank for rank, (at, *_) in enumerate(positions.tolist()) if at != _NO_STATE]
        lack = [rank for rank in range(self.size) if rank not in have]
        if not have or not lack:
            if self._has_begun and not have:
                self._run.start_all_again("a worker was lost before the first step")
            return None
        if len({tuple(positions[rank]) for rank in have}) > 1 or not positions[have[0], 2]:
            self._run.start_all_again("the workers that are left are not at one place, or have no room for its results")
        state = self._given(lack) if self.rank == have[0] else b""
        (data,) = super().gather("state", [np.frombuffer(state, np.uint8)])
        return data

    def _given(self, lack: Sequence[int]) -> bytes:
        assert self._border is not None
        assert self._old is not None
        mirrors, there = Mirrors(self._old), range(self._old.num_ranks)
        own = {rank: mirrors.read(rank, self._border) if rank in there else None for rank in lack}
        missing = [rank for rank, state in own.items() if state is None and rank < self._num_mirrored]
        if missing:
            self._run.start_all_again(f"what was worker {missing[0]}'s own is not in its mirror")
        return pickle.dumps((self._border, self._give(), own, self._calls.told()), protocol=5)

    def _unpacked(self, data: np.ndarray) -> tuple[State, list[Answer]]:
        border, shared, own, calls = pickle.loads(data.tobytes())  # noqa: S301 - of a worker of this run
        return State(border, shared, own[self.rank]), calls

    def close(self) -> None:
        """Release the memory."""
        if self._old is not None and self._old is not self._memory:
            self._old.close()
        super().close()


def _told(channel: SumBuffer) -> str:
    return f"{channel.dtype} {channel.shapes}"
