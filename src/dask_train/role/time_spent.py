"""Where the time of a role goes: on data, on others, on sums, on checkpoints, on its client; the rest is computing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

# The rest of a role's time, besides what is named.
COMPUTING = "computing"
DATA, CHECKPOINTS, CLIENT = "data", "checkpoints", "client"
OTHERS, SUMS = "others", "sums"


class Timed(Protocol):
    """A group of ranks that knows how long it has taken: :class:`~dask_train.collectives.ProcessGroup`."""

    def seconds(self) -> tuple[float, float]:
        """Seconds of sums, and of waiting for others; up to now."""

    @property
    def is_waiting(self) -> bool | None:
        """Whether it waits for others now; None if it does nothing."""


class TimeSpent:
    """The account of a role's time from when its user's function began.

    What several threads do at a time counts once, as what began first: a loader that reads ahead while the loop
    computes takes no time of the role.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._began: float | None = None
        self._counted: dict[str, float] = {}
        self._now = ""
        self._since, self._thread = 0.0, 0
        self._groups: list[Timed] = []

    def begin(self) -> None:
        """Note that the user's function begins: time counts from here."""
        self._began = self._clock()

    @contextmanager
    def on(self, activity: str) -> Iterator[None]:
        """While it lasts the role is busy with this, unless another thread of it is busy with something already."""
        thread = threading.get_ident()
        with self._lock:
            if counts := not self._now or self._thread == thread:
                outer = self._turn_to(activity, thread)
        try:
            yield
        finally:
            if counts:
                with self._lock:
                    self._turn_to(outer, thread)

    def _turn_to(self, activity: str, thread: int) -> str:
        now, before = self._clock(), self._now
        if before:
            self._counted[before] = self._counted.get(before, 0.0) + now - self._since
        self._now, self._since, self._thread = activity, now, thread
        return before

    @contextmanager
    def following(self, group: Timed) -> Iterator[None]:
        """While it lasts what a group of ranks takes counts as sums, and as waiting for others."""
        self._groups.append(group)
        try:
            yield
        finally:
            self._groups.remove(group)
            took = _of_group(group)
            with self._lock:
                for activity, seconds in took.items():
                    self._counted[activity] = self._counted.get(activity, 0.0) + seconds

    @property
    def busy_with(self) -> str:
        """What the role does now."""
        waits = [group.is_waiting for group in list(self._groups)]
        if True in waits:
            return OTHERS
        return SUMS if False in waits else self._now or COMPUTING

    def seconds(self) -> dict[str, float]:
        """Seconds by activity up to now, the current one included; from any thread. Empty before the beginning."""
        if self._began is None:
            return {}
        with self._lock:
            now, seconds_by_activity = self._clock(), dict(self._counted)
            if self._now:
                seconds_by_activity[self._now] = seconds_by_activity.get(self._now, 0.0) + now - self._since
        for group in list(self._groups):
            for activity, seconds in _of_group(group).items():
                seconds_by_activity[activity] = seconds_by_activity.get(activity, 0.0) + seconds
        seconds_by_activity[COMPUTING] = max(0.0, now - self._began - sum(seconds_by_activity.values()))
        return {activity: round(seconds, 3) for activity, seconds in seconds_by_activity.items()}


def _of_group(group: Timed) -> dict[str, float]:
    summing_s, waiting_s = group.seconds()
    return {OTHERS: waiting_s, SUMS: summing_s}
