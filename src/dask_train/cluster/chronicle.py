"""What a run has told: scores, results, attempts, pictures; and its event log, from which it can be replayed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask_train.data.account import Stretch
from dask_train.data.ledger import Ledger, balance
from dask_train.result import Attempt
from dask_train.run import commands, events
from dask_train.run.commands import Finish, Key, Verdict
from dask_train.run.state import ALIVE, RunState, name_of

if TYPE_CHECKING:
    from dask_train.cluster.driver import Job


class Chronicle:
    """Kept by a driver, read by whoever holds the run.

    Attributes
    ----------
    scores
        As :attr:`dask_train.result.Result.scores`.
    results
        Pickled results of roles that have returned.
    values
        What roles have sent and nobody has received yet: role, rank, pickled value.
    raised
        What the roles' agents told of exceptions.
    accounts
        Which batches each attempt of a role has taken; see :mod:`dask_train.data.account`.
    doing
        What each role does, and how many batches it took.
    pictures, diagnosis
        The last look into the roles, raw and as text.
    log
        Every event with the commands that it led to.
    outcome
        How the run ended, as a sentence.
    driver_error
        The exception behind an end that no role is to blame for.
    closed
        Whether nothing of the run is left.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.scores: list[dict[str, Any]] = []
        self.results: dict[Key, bytes] = {}
        self.values: deque[tuple[str, int, bytes]] = deque()
        self.raised: dict[Key, dict[str, Any]] = {}
        self.accounts: dict[Key, dict[int, list[list[int]]]] = {}
        self.doing: dict[Key, tuple[str, int]] = {}
        self.pictures: dict[Key, dict[str, Any]] = {}
        self.diagnosis = ""
        self.attempts: list[Attempt] = []
        self.log: list[tuple[events.Event, tuple[commands.Command, ...]]] = []
        self.first: RunState
        self.outcome = ""
        self.driver_error: BaseException | None = None
        self.closed = False
        self.most_steps = 0
        self._progressed: dict[Key, float] = {}
        self._unlogged: dict[Key | None, events.Event] = {}
        self._last: dict[Key, dict[str, Any]] = {}

    def begin(self, state: RunState) -> None:
        """The run has been asked for."""
        self.first = state
        self.attempts.append(Attempt(number=0, started=state.since))

    def turned(
        self, before: RunState, event: events.Event, after: RunState, todo: tuple[commands.Command, ...]
    ) -> None:
        """The run has taken a turn."""
        if not todo and isinstance(event, events.Progressed | events.DataProgressed):
            # The last one of each says it all.
            self._unlogged[event.key if isinstance(event, events.Progressed) else None] = event
        elif todo or not isinstance(event, events.Ticked) or after != before:
            self.log += [(progress, ()) for progress in self._unlogged.values()]
            self._unlogged.clear()
            self.log.append((event, todo))
        for key, role in after.roles.items():
            if role.attempt != before.roles[key].attempt:  # what it returned before no longer counts
                self.results.pop(key, None)
                self.raised.pop(key, None)
        if after.num_restarts > before.num_restarts:
            self.attempts[-1].ended, self.attempts[-1].reason = event.time, after.losses[-1]
            self.attempts.append(Attempt(number=after.num_restarts, started=event.time))
        if isinstance(event, events.Placed):
            self.attempts[-1].places.update(event.places)

    def finished(self, finish: Finish | None) -> None:
        """The run is over."""
        if finish is None:
            self.outcome = "cancelled"
        elif finish.verdict is Verdict.OK:
            self.outcome = finish.what or "its training roles have returned"
        else:
            self.outcome = f"{finish.verdict}: {finish.what}"
        if self.attempts:
            self.attempts[-1].ended, self.attempts[-1].reason = time.time(), self.outcome

    def moved(self, key: Key, kind: str, raw: dict[str, Any], interval_s: float) -> bool:
        """A role has told scores or progress, or sent a value; whether that is to be noted as an event."""
        if kind == "value":
            self.values.append((*key, raw["value"]))
        elif kind == "scores":
            self.scores.extend(dict(score) for score in raw["scores"])
            self._last[key] = self.scores[-1]
        else:
            self.doing[key] = (raw["doing"], raw["steps"])
            self.most_steps = max(self.most_steps, raw["steps"])
        if raw["time"] - self._progressed.get(key, 0.0) < interval_s:
            return False
        self._progressed[key] = raw["time"]
        return True

    def ledger(self, num_rows: Mapping[tuple[str, int], int]) -> Ledger:
        """The account of rows; what a role did on a Dask worker that died is not in it."""
        accounts = {
            key: [[Stretch.of(record) for record in attempt] for attempt in attempts.values()]
            for key in self._job.plan.role_keys()
            if (attempts := self.accounts.get(key)) is not None
        }
        return balance(accounts, self._job.plan.counts, num_rows)

    def last_scores(self) -> list[list[Any]]:
        """The latest score of each role, for those who look from elsewhere."""
        return [[role, rank, score] for (role, rank), score in self._last.items()]

    def stalled(self, keys: Sequence[Key], state: RunState) -> tuple[str, ...]:
        """Which roles are to blame for a stall, as far as their pictures tell."""
        named = []
        for key in keys:
            picture = self.pictures.get(key)
            if picture is None:
                named.append(f"{name_of(key)} on {state.roles[key].address}: its agent does not answer")
            elif not picture["stacks"]:
                named.append(f"{name_of(key)} (process {picture['pid']}) does not answer: it is {picture['state']}")
        if not named:
            named = [f"{name_of(key)} is {self.pictures[key]['doing']}" for key in keys if key in self.pictures]
        return tuple(named)

    def diagnosis_text(self, state: RunState) -> str:
        """The pictures of all roles, for people."""
        parts = [f"Run {self._job.id}: {state}"]
        for key, role in state.roles.items():
            if role.phase not in ALIVE:
                parts.append(f"{name_of(key)}: {role.phase}")
                continue
            picture = self.pictures.get(key)
            if picture is None:
                parts.append(f"{name_of(key)} on {role.address}: {role.phase}; its agent does not answer")
                continue
            parts.append(
                f"{name_of(key)} on {role.address}, process {picture['pid']}: {role.phase}, {picture['doing']} since "
                f"{picture['for_s']:g} s, {picture['steps']} batches; the process is {picture['state']}\n"
                + (_without_ours(picture["stacks"]) or "  (no Python stacks: the process does not answer)\n")
            )
        return "\n".join(parts)


def _without_ours(stacks: str) -> str:
    """Stacks without the two threads that carry a session's messages, which are always there."""
    threads = [thread for thread in stacks.split("\n\n") if "dask_train/role_process/link.py" not in thread]
    return "\n\n".join(threads)
