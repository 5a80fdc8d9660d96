"""The ranks that train one model together, and what they do together: sum, broadcast and gather arrays."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.share_sums import ShareBuffer
from dask_train.collectives.shared_memory import Section, SharedMemory, SumBuffer
from dask_train.errors import StalledError

# How long a wait sleeps before it looks at its deadline.
_LOOK_S = 0.5
# A rank that is almost there is not slept for: the kernel takes some 50 us to wake a process.
_SPINS = 20


class InterHostSum(Protocol):
    """What the first ranks of all hosts do together, in the same order; arrays are ``(n,)`` and change in place."""

    def __call__(self, arrays: Sequence[np.ndarray], combine: np.ufunc = np.add, *, rounds: bool = False) -> None:
        """Add up arrays over the hosts, each by itself, or combine them in another way.

        ``rounds`` to let float32 travel as bfloat16, so that totals are numbers of that, too.
        """

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Give one host's array to all."""

    def gather(self, array: np.ndarray, blocks: Sequence[Sequence[slice]]) -> None:
        """Give all hosts the parts of the array that each has, listed by host."""


class ProcessGroup:
    """All ranks of a run that agree at every step.

    Every rank calls the same methods in the same order. Sums are made in the order of the ranks, so they are the same
    on all of them to the last bit, and from run to run.

    Parameters
    ----------
    hosts, rank
        The ranks, and which one this is.
    memory
        What the ranks of this host share.
    across
        The way to other hosts, for the first rank of each alone; None if there is one host.
    timeout_s
        How long one may wait for the others, in seconds.

    Attributes
    ----------
    all_reduce_s
        Seconds that this rank has spent on sums, waiting for the others included.
    waiting_s
        Seconds of these in which it waited for others of its host.

    Notes
    -----
    Bytes moved in a host with ``R`` ranks and arrays of ``n`` bytes: every rank reads ``n`` of its own, writes what the
    others sum of it, ``n (R - 1) / R``, reads as much of theirs, and writes ``n / R`` of the sum, which all read where
    it is.
    """

    _look_s = _LOOK_S

    def __init__(
        self, hosts: Hosts, rank: int, memory: SharedMemory, across: InterHostSum | None, timeout_s: float
    ) -> None:
        self.rank, self.size = rank, len(hosts.addresses)
        self._groups, self._group = hosts.groups, hosts.group_of(rank)
        self._memory, self._across, self._timeout_s = memory, across, timeout_s
        self.all_reduce_s = self.waiting_s = 0.0
        self._began = self._waits_since = 0.0  # of the current operation; 0 if there is none
        self._summing_s = self._waited_before_s = 0.0
        self._channels: dict[Hashable, SumBuffer] = {}

    def channel(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype | type | str,
        sections: Sequence[int] | None = None,
        *,
        rounds: bool = False,
    ) -> SumBuffer:
        """Memory for sums of arrays of these shapes and this dtype; made once, used as often as one likes.

        Parameters
        ----------
        shapes, dtype
            Of the arrays.
        sections
            How many of the arrays are in each section, of which :meth:`sum_section` sums one by itself. Default: one
            has all.
        rounds
            Whether numbers, of float32, travel between hosts as bfloat16, so that all ranks keep totals that are
            rounded; within a host nothing is. Default: false.
        """
        channel = self._memory.channel(shapes, np.dtype(dtype), sections)
        channel.rounds = rounds
        return channel

    def sum(self, channel: SumBuffer, arrays: Sequence[np.ndarray], weight: float = 1.0) -> list[np.ndarray]:
        """Return the sum over all ranks of ``weight * array``, of each array.

        Parameters
        ----------
        channel
            For these arrays; the same one on all ranks.
        arrays
            This rank's, of the channel's shapes.
        weight
            This rank's. With 0 its arrays count as zeros, whatever is in them (also NaN).

        Returns
        -------
        list of np.ndarray
            Views of the channel's memory, good until the next sum in it.

        Raises
        ------
        StalledError
            Another rank did not come in time.
        """
        return self.combine(channel, arrays, np.add, weight)

    def combine(
        self, channel: SumBuffer, arrays: Sequence[np.ndarray], how: np.ufunc, weight: float = 1.0
    ) -> list[np.ndarray]:
        """Return what ``how`` makes of all ranks' arrays, such as their maximum; otherwise as :meth:`sum`."""
        self._combine(channel.sections, arrays, how, weight, rounds=channel.rounds)
        return channel.totals

    def sum_section(self, channel: SumBuffer, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the sum of the arrays of one section, to the last bit what :meth:`sum` of all makes of them."""
        section = channel.sections[number]
        self._combine([section], arrays, np.add, 1.0, rounds=channel.rounds)
        return channel.totals[section.arrays]

    def share_channel(
        self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype | type | str, num_shares: int
    ) -> ShareBuffer:
        """Memory for sums over shares, of which each rank has a block, of arrays of these shapes; on one host."""
        channel = ShareBuffer(shapes, dtype, num_shares)
        self._memory.make_room(channel)
        return channel

    def sum_shares(self, channel: ShareBuffer, nodes: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Return the sum over all shares of each array, to the same bits for any number of ranks.

        Parameters
        ----------
        channel
            For these arrays; the same one on all ranks.
        nodes
            This rank's, of each node of :class:`ShareTree` that its shares make up.

        Returns
        -------
        list of np.ndarray
            As of :meth:`sum`, which also has what is raised.
        """
        with self._counted():
            channel.give(nodes)
            self._wait()
            channel.add_up(nodes)
            self._wait()
        return channel.totals

    def _combine(
        self, sections: Sequence[Section], arrays: Sequence[np.ndarray], how: np.ufunc, weight: float, *, rounds: bool
    ) -> None:
        with self._counted():
            flat = [np.reshape(array, -1) for array in arrays]
            for section in sections:
                section.give(flat[section.offset(sections[0])], weight)
            self._wait()
            for section in sections:
                section.add_up(flat[section.offset(sections[0])], weight, how)
            self._wait()
            self._over_hosts(lambda across: across([section.total for section in sections], how, rounds=rounds))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        started, waited_s = time.perf_counter(), self.waiting_s
        self._began, self._waited_before_s = started, waited_s
        try:
            yield
        finally:
            self._began = 0.0
            took_s = time.perf_counter() - started
            self.all_reduce_s += took_s
            self._summing_s += max(0.0, took_s - (self.waiting_s - waited_s))

    def seconds(self) -> tuple[float, float]:
        """Seconds of sums without the waits in them, and of all waits; up to now, from any thread."""
        now, began, waits_since = time.perf_counter(), self._began, self._waits_since
        waiting_s = self.waiting_s + (now - waits_since if waits_since else 0.0)
        goes_on_s = max(0.0, now - began - (waiting_s - self._waited_before_s)) if began else 0.0
        return self._summing_s + goes_on_s, waiting_s

    @property
    def is_waiting(self) -> bool | None:
        """Whether this rank waits for others of its host now; None if it does nothing with them."""
        return True if self._waits_since else (False if self._began else None)

    def _over_hosts(self, do: Callable[[InterHostSum], None]) -> None:
        """Let the first rank of this host do its part with those of others, and wait for it."""
        if len(self._groups) > 1:
            if self._memory.place == 0:
                assert self._across is not None
                do(self._across)
            self._wait()

    def gather(self, key: Hashable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the rows of all ranks, of each array, in the order of the ranks.

        Parameters
        ----------
        key
            Distinguishes this gathering from others; the same on all ranks.
        arrays
            This rank's, with as many rows each, which may be none; other ranks may have others.

        Returns
        -------
        list of np.ndarray
            ``(rows of all ranks, *row_shape)``, copied once.
        """
        of_each = self._known(key, "counts", partial(self.channel, [(self.size,)], np.int64))
        self._gather(of_each, np.array([len(arrays[0])]), [slice(rank, rank + 1) for rank in range(self.size)])
        starts = np.concatenate([[0], np.cumsum(of_each.totals[0])])
        gathered: list[np.ndarray] = []
        for array in arrays:
            edges = (starts * math.prod(array.shape[1:])).tolist()
            room = 1 << max(4, int(edges[-1] - 1).bit_length())  # made anew for twice as many numbers, not for one more
            channel = self._known(key, (array.dtype, room), partial(self.channel, [(room,)], array.dtype))
            self._gather(channel, np.reshape(array, -1), [slice(*pair) for pair in itertools.pairwise(edges)])
            gathered.append(channel.total[: edges[-1]].reshape(starts[-1], *array.shape[1:]).copy())
        return gathered

    def _gather(self, channel: SumBuffer, mine: np.ndarray, places: Sequence[slice]) -> None:
        """Fill a channel's total with what each rank has, at the place of each."""
        self._wait()  # others may still read what was there
        self.exchange(channel, mine, places)

    def exchange(
        self,
        channel: SumBuffer,
        mine: np.ndarray,
        places: Sequence[slice],
        look: Callable[[], object] = lambda: None,
    ) -> list[np.ndarray]:
        """Fill a channel's total with what each rank has, at the place of each; what was there is no longer read.

        Parameters
        ----------
        channel
            The same one on all ranks.
        mine
            This rank's.
        places
            By rank.
        look
            Called when what the ranks of this host have is there, before that of other hosts is.

        Returns
        -------
        list of np.ndarray
            The arrays of the channel's total.

        Raises
        ------
        StalledError
            Another rank did not come in time.
        """
        with self._counted():
            channel.total[places[self.rank]] = mine
            self._wait()
            look()
            whose = [[places[rank] for rank in group] for group in self._groups]
            self._over_hosts(lambda across: across.gather(channel.total, whose))
        return channel.totals

    def _known(self, key: Hashable, part: Hashable, make: Callable[[], SumBuffer]) -> SumBuffer:
        if (key, part) not in self._channels:
            self._channels[key, part] = make()
        return self._channels[key, part]

    def broadcast(self, channel: SumBuffer, arrays: Sequence[np.ndarray], root: int = 0) -> list[np.ndarray]:
        """Return the arrays of one rank on all ranks, to the last bit; those of others are not looked at."""
        with self._counted():
            self._wait()  # others may still read what was there
            if self.rank == root:
                for target, array in zip(channel.totals, arrays, strict=True):
                    target[...] = array
            self._wait()
            host = next(number for number, group in enumerate(self._groups) if root in group)
            self._over_hosts(lambda across: across.broadcast(channel.total, host))
        return channel.totals

    @property
    def num_hosts(self) -> int:
        """Return how many hosts the ranks are on."""
        return len(self._groups)

    @property
    def most_hosts(self) -> int:
        """Return on how many hosts at most the ranks have been."""
        return self.num_hosts

    @property
    def may_sum_early(self) -> bool:
        """Return whether sums of sections may begin before all arrays are there, as pays between hosts."""
        return self.num_hosts > 1

    @property
    def top(self) -> int:
        """How far this host's memory is taken by channels."""
        return self._memory.top

    @property
    def leader(self) -> int:
        """The first rank of this host, which deals with other hosts."""
        return self._group[0]

    def begin_again(self, top: int = 0) -> None:
        """Forget the channels in this memory, those before ``top`` aside, when all ranks of the host have come here.

        Raises
        ------
        StalledError
            Another rank did not come in time.
        """
        self._wait()
        self._memory.begin_again(top)

    def leave(self) -> None:
        """Let the others of this host go through one more :meth:`exchange` without this rank; its last call."""
        self._memory.arrive()
        self._memory.arrive()

    def _wait(self) -> None:
        """Until all ranks of the host have come here."""
        memory = self._memory
        if memory.num_ranks == 1:
            return
        memory.arrive()
        started = self._waits_since = time.perf_counter()
        try:
            for place in range(memory.num_ranks):
                self._wait_for(place, started)
        finally:
            self._waits_since = 0.0
            self.waiting_s += time.perf_counter() - started

    def _wait_for(self, place: int, started: float) -> None:
        spins = 0
        while not self._memory.wait_for(place, 0.0 if spins < _SPINS else self._look_s):
            spins += 1
            self._look(place, started)

    def _look(self, place: int, started: float) -> None:
        """Look whether to wait on for a rank of this host, which has not come since ``started``."""
        if time.perf_counter() - started > self._timeout_s:
            raise StalledError(
                f"Rank {self._group[place]} did not come to where rank {self.rank} waits for the others, for "
                f"{self._timeout_s:g} s.",
                "It hangs, or it is much slower than the others.",
                "See what it does with run.diagnose(), or raise train.progress.timeout.",
            )

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
