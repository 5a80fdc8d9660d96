"""The ranks that train one model together, and the one thing that they do together: sum arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from dask_train.agreement.hosts import Hosts
from dask_train.agreement.memory import Channel, SharedMemory
from dask_train.errors import StalledError

# How long a wait sleeps before it looks at its deadline.
_LOOK_S = 0.5
# A rank that is almost there is not slept for: the kernel takes some 50 us to wake somebody.
_SPINS = 20

Across = Callable[[np.ndarray], None]


class Replicas:
    """All ranks of a run that agree at every step.

    Every rank calls the same methods in the same order. Sums are made in the order of the ranks, so they are the same
    on all of them to the last bit, and from run to run.

    Parameters
    ----------
    hosts, rank
        Who they are, and which this is.
    memory
        What the ranks of this host share.
    across
        Adds up an array over the first ranks of all hosts, in place; None where there is one host. Called on those
        only, by all of them in the same order, with arrays of the same sizes.
    timeout_s
        How long one may wait for the others, in seconds.

    Attributes
    ----------
    agreeing_s
        Seconds that this rank has spent on sums, waiting for the others included.
    waiting_s
        Seconds of these in which it waited for others of its host.

    Notes
    -----
    Bytes moved in a host with ``R`` ranks and arrays of ``n`` bytes: every rank reads ``n`` of its own, writes what the
    others sum of it, ``n (R - 1) / R``, reads as much of theirs, and writes ``n / R`` of the sum, which all read where
    it is.
    """

    def __init__(self, hosts: Hosts, rank: int, memory: SharedMemory, across: Across | None, timeout_s: float) -> None:
        self.rank, self.size = rank, len(hosts.addresses)
        self._group = hosts.group_of(rank)
        self._memory, self._across, self._timeout_s = memory, across, timeout_s
        self._one_host = len(hosts.groups) == 1
        self.agreeing_s = self.waiting_s = 0.0
        self._channels: dict[Hashable, Channel] = {}

    def channel(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype | type | str) -> Channel:
        """Memory for sums of arrays of these shapes and this dtype; made once, used as often as one likes."""
        return self._memory.channel(shapes, np.dtype(dtype))

    def sum(self, channel: Channel, arrays: Sequence[np.ndarray], weight: float = 1.0) -> list[np.ndarray]:
        """The sum over all ranks of ``weight * array``, of each array.

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
        started = time.perf_counter()
        flat = [np.reshape(array, -1) for array in arrays]
        channel.give(flat, weight)
        self._wait()
        channel.add_up(flat, weight)
        self._wait()
        if not self._one_host:
            if self._memory.place == 0:
                assert self._across is not None
                self._across(channel.total)
            self._wait()
        self.agreeing_s += time.perf_counter() - started
        return channel.totals

    def gather(self, key: Hashable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The rows of all ranks, of each array, in the order of the ranks.

        Parameters
        ----------
        key
            Tells this gathering from others; the same on all ranks.
        arrays
            This rank's, with as many rows each, which may be none; other ranks may have others.

        Returns
        -------
        list of np.ndarray
            ``(rows of all ranks, *row_shape)``, copied once.
        """
        counts = np.zeros(self.size)
        counts[self.rank] = len(arrays[0])
        (counts,) = self.sum(self._known(key, "counts", partial(self.channel, [(self.size,)], np.float64)), [counts])
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        room = 1 << max(4, int(starts[-1] - 1).bit_length())  # channels are made anew for twice the rows, not for one
        whole = [np.zeros((room, *array.shape[1:]), array.dtype) for array in arrays]
        for target, array in zip(whole, arrays, strict=True):
            target[starts[self.rank] : starts[self.rank + 1]] = array
        found: list[np.ndarray] = []
        for number, target in enumerate(whole):
            channel = self._known(key, (number, room), partial(self.channel, [target.shape], target.dtype))
            (total,) = self.sum(channel, [target])
            found.append(total[: starts[-1]].copy())
        return found

    def _known(self, key: Hashable, part: Hashable, make: Callable[[], Channel]) -> Channel:
        if (key, part) not in self._channels:
            self._channels[key, part] = make()
        return self._channels[key, part]

    def from_first(self, channel: Channel, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays of rank 0, on all ranks; those of the others are not looked at."""
        return self.sum(channel, arrays, weight=1.0 if self.rank == 0 else 0.0)

    def begin_again(self) -> None:
        """Forget what others before have agreed on in this memory, when all ranks of the host have come here.

        Raises
        ------
        StalledError
            Another rank did not come in time.
        """
        self._wait()
        self._memory.begin_again()

    def _wait(self) -> None:
        """Until all ranks of the host have come here."""
        memory = self._memory
        memory.arrive()
        started = time.perf_counter()
        for place in range(memory.num_ranks):
            spins = 0
            while not memory.wait_for(place, 0.0 if spins < _SPINS else _LOOK_S):
                spins += 1
                if time.perf_counter() - started > self._timeout_s:
                    raise StalledError(
                        f"Rank {self._group[place]} did not come to the sum that rank {self.rank} waits in for "
                        f"{self._timeout_s:g} s.",
                        "It hangs, or it is much slower than the others.",
                        "See what it does with run.diagnose(), or raise train.progress.timeout.",
                    )

        self.waiting_s += time.perf_counter() - started

    def close(self) -> None:
        """Give the memory up."""
        self._memory.close()
