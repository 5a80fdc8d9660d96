"""What roles tell with their progress: where their time goes, and which of them holds the others up; and their use.

That is what they get through and take: batches, rows, memory, processors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# What time goes to, as ``dask_train.role.time_spent`` names it, in words.
ACTIVITIES = {
    "computing": "computing",
    "data": "waiting for data",
    "others": "waiting for others",
    "sums": "summing",
    "checkpoints": "checkpoints",
    "client": "waiting for the client",
}
# Over how many seconds the slowest role is looked for, and from how many on.
WINDOW_S, ENOUGH_S = 30.0, 2.0
# Where the roles differ by less than this part of their time, none holds the others up.
DIFFERENCE = 0.1

Key = tuple[str, int]
Seconds = Mapping[str, float]

# Over how many seconds rates are taken; where nothing was reported for so long there are none.
RATE_S = 10.0


@dataclass
class RoleTime:
    """The time of one role, over all its attempts."""

    attempt: int = 0
    spent: dict[str, float] = field(default_factory=dict)  # of this attempt
    before: dict[str, float] = field(default_factory=dict)  # of those before
    busy_with: str = ""
    heard: float = 0.0
    recent: deque[tuple[float, Seconds]] = field(default_factory=deque)  # of this attempt

    def tell(self, attempt: int, spent: Seconds, busy_with: str, now: float) -> None:
        """Take over the role's last report; a number never goes down."""
        if attempt < self.attempt:  # of a process that was replaced: its last words may come late
            return
        if attempt != self.attempt:
            self.before, self.spent, self.attempt = self.seconds(), {}, attempt
            self.recent.clear()
        self.spent.update({name: max(float(s), self.spent.get(name, 0.0)) for name, s in spent.items()})
        self.busy_with, self.heard = busy_with, now
        if not self.recent or now - self.recent[-1][0] >= 1.0:
            self.recent.append((now, dict(self.spent)))
        while len(self.recent) > 2 and now - self.recent[1][0] >= WINDOW_S:
            self.recent.popleft()

    def seconds(self) -> dict[str, float]:
        """Seconds by activity, as reported."""
        return {name: self.before.get(name, 0.0) + self.spent.get(name, 0.0) for name in {**self.before, **self.spent}}

    def up_to(self, now: float | None) -> dict[str, float]:
        """Return the same with the current activity up to ``now``; as reported if that is None: its process is gone."""
        seconds = self.seconds()
        if now is not None and self.busy_with:
            seconds[self.busy_with] = seconds.get(self.busy_with, 0.0) + max(0.0, now - self.heard)
        return seconds

    def lately(self, now: float) -> dict[str, float]:
        """Seconds by activity of the last ones; empty if there are not enough of them."""
        if not self.recent or now - self.recent[0][0] < ENOUGH_S:
            return {}
        total, first = self.up_to(now), self.recent[0][1]
        return {name: max(0.0, s - self.before.get(name, 0.0) - first.get(name, 0.0)) for name, s in total.items()}


class Times(dict[Key, RoleTime]):
    """The times of the roles of a run."""

    def tell(self, of: Any, fields: Mapping[str, Any], now: float) -> Iterator[tuple[tuple[str, int, str], float]]:
        """Take over what a role has reported with its progress, as ``dask_train.process.messages.Progress`` has it.

        Returns
        -------
        iterator
            Of seconds that are new, by role, rank and what they went to.
        """
        role, rank, attempt = of
        if not fields.get("spent"):
            return
        known = self.setdefault((role, rank), RoleTime(attempt=attempt))
        before = known.seconds()
        known.tell(attempt, fields["spent"], fields["busy_with"], now)
        for name, seconds in known.seconds().items():
            if new := seconds - before.get(name, 0.0):
                yield (role, rank, name), new


def straggler(times: Mapping[Key, RoleTime], running: set[Key], now: float) -> str:
    """Return which role the others wait for, as a sentence; empty if none is much slower.

    Who does least together with the others, of roles that meet in every step, is who comes last.
    """
    lately = {key: times[key].lately(now) for key in sorted(running & set(times))}
    shares = {key: _share(seconds, "others", "sums") for key, seconds in lately.items() if sum(seconds.values())}
    for names in _by_name(shares):
        slowest, quickest = min(names, key=shares.__getitem__), max(names, key=shares.__getitem__)
        if len(names) > 1 and shares[quickest] - shares[slowest] >= DIFFERENCE:
            waits = _share(lately[quickest], "others")
            parts = sorted(lately[slowest].items(), key=lambda part: -part[1])[:2]
            does = " and ".join(
                f"{_share(lately[slowest], name):.0%} {ACTIVITIES.get(name, name)}" for name, _ in parts
            )
            return (
                f"{slowest[0]} {slowest[1]} holds the others up: its time of the last {WINDOW_S:g} s is {does}; "
                f"{quickest[0]} {quickest[1]} waits for others {waits:.0%} of the time."
            )
    return ""


def _by_name(keys: Mapping[Key, Any]) -> Iterator[list[Key]]:
    for name in sorted({name for name, _ in keys}):
        yield [key for key in keys if key[0] == name]


def _share(seconds: Seconds, *names: str) -> float:
    whole = sum(seconds.values())
    return sum(seconds.get(name, 0.0) for name in names) / whole if whole else 0.0


@dataclass
class RoleUse:
    """What one role has reported, of its attempt now; its most memory is that of all attempts."""

    attempt: int = 0
    rows: int = 0
    memory_bytes: int = 0
    most_memory_bytes: int = 0
    recent: deque[tuple[float, int, int, float]] = field(default_factory=deque)  # when; batches, rows, CPU seconds

    def tell(self, attempt: int, fields: Mapping[str, Any], now: float) -> None:
        """Take over its last report."""
        if attempt < self.attempt:
            return
        if attempt != self.attempt:
            self.recent.clear()
        self.attempt, self.rows, self.memory_bytes = attempt, int(fields["rows"]), int(fields["memory_bytes"])
        self.most_memory_bytes = max(self.most_memory_bytes, self.memory_bytes)
        self.recent.append((now, int(fields["steps"]), self.rows, float(fields["cpu_s"])))
        while len(self.recent) > 2 and now - self.recent[1][0] >= RATE_S:
            self.recent.popleft()

    def rates(self, now: float) -> tuple[float, float, float]:
        """Batches, rows and CPU seconds a second, over the last seconds; all 0 if it has reported nothing."""
        if len(self.recent) < 2 or now - self.recent[-1][0] > RATE_S:
            return 0.0, 0.0, 0.0
        (begin, *first), (end, *last) = self.recent[0], self.recent[-1]
        took_s = end - begin
        batches, rows, cpu_s = ((b - a) / took_s if took_s > 0 else 0.0 for a, b in zip(first, last, strict=True))
        return batches, rows, cpu_s


class Usage(dict[tuple[str, int], RoleUse]):
    """What the roles of a run have reported."""

    def tell(self, of: Any, fields: Mapping[str, Any], now: float) -> None:
        """Take over a role's progress, as ``dask_train.process.messages.Progress`` has it."""
        role, rank, attempt = of
        self.setdefault((role, rank), RoleUse(attempt=attempt)).tell(attempt, fields, now)
