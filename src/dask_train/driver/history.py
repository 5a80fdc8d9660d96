"""What a run has reported: scores, results, attempts, pictures; and its event log, from which it can be replayed."""

from __future__ import annotations

import logging
import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from dask_train.arguments import nearest
from dask_train.checkpoint.manifest import Cover
from dask_train.data.account import BatchRange
from dask_train.data.ledger import Ledger, balance, left_out
from dask_train.data.letterbox import Letterbox
from dask_train.driver.clock import RunClock
from dask_train.driver.job import Job
from dask_train.driver.result import Attempt, Result, RunAccount
from dask_train.logging.base import Ending
from dask_train.logging.log import Log
from dask_train.masking import masked
from dask_train.printing import say
from dask_train.process.messages import STOPPED, Accounted, Notice, Pictured, Progress, Reported, Value, WentOn
from dask_train.run import commands, events
from dask_train.run.commands import Finish, Key, Verdict
from dask_train.run.messages import DataProgressed, Ended, Failed, Message, RoleProcess
from dask_train.run.state import ALIVE, RunState, name_of
from dask_train.run.stop_rule import ORIGIN, PROGRESS, StopRule

# Why a run ends that Ctrl-C, or a notebook's interrupt, has ended.
INTERRUPTED = "it was interrupted"
_FREQUENT = events.Progressed | DataProgressed | events.AwaitsClient | events.ClientWaits


class History:
    """Kept by a driver, read through the run's handle.

    Attributes
    ----------
    scores
        As :attr:`dask_train.driver.result.Result.scores`.
    results
        Pickled results of roles that have returned.
    letterbox
        Where they have left large arrays; None if there are none.
    values
        What roles have sent and the client has not received yet: role, rank, pickled value.
    notices
        What roles have reported that is out of the ordinary, in order.
    raised
        What the roles' agents reported of exceptions.
    accounts
        Which batches each attempt of a role has taken; see :mod:`dask_train.data.account`.
    now
        The time by the run's clock.
    doing
        What each role does, and how many batches it took.
    rows_seen
        How many rows have gone through the hands of each role's process.
    pictures, diagnosis
        The last look into the roles, raw and as text.
    log
        Every event with the commands that it led to.
    outcome
        How the run ended, as a sentence.
    driver_error
        The exception behind an end that no role is to blame for.
    agent_errors
        With which exceptions agents have ended, by Dask worker.
    closed
        Whether nothing of the run is left.
    sent_to
        Where its user sees scores besides; None for nowhere.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.now = RunClock()
        self.scores: list[dict[str, Any]] = []
        self.results: dict[Key, Ended] = {}
        self.letterbox: Letterbox | None = None
        self.values: deque[tuple[str, int, bytes]] = deque()
        self.notices: list[str] = []
        self.raised: dict[Key, Failed] = {}
        self.accounts: dict[Key, dict[int, Sequence[Sequence[int]]]] = {}
        self.doing: dict[Key, tuple[str, int]] = {}
        self.rows_seen: dict[Key, int] = {}
        self.pictures: dict[Key, Pictured] = {}
        self.diagnosis = ""
        self.attempts: list[Attempt] = []
        self.log: list[tuple[events.Event, tuple[commands.Command, ...]]] = []
        self.first: RunState
        self._joined: set[Key] = set()  # roles that the run began without
        self.outcome = ""
        self.driver_error: BaseException | None = None
        self.agent_errors: dict[str, BaseException] = {}
        self.closed = False
        self.most_steps = 0
        self._progressed: dict[Key, float] = {}
        self._unlogged: dict[tuple[type[Any], RoleProcess | None], events.Event] = {}
        self._last: dict[Key, dict[str, Any]] = {}
        self._all_at_once: list[dict[Key, int]] = []  # attempts of launches of the whole gang
        self.reported_as_progress: frozenset[str] = frozenset()  # see RunProgress
        self.sent_to: Log | None = None
        self._skipped: dict[str, int] = {}  # rows that were left out, by data set
        self._covers: list[tuple[Key, int, Sequence[Cover]]] = []  # of checkpoints that attempts of roles resumed from

    def returned(self, key: Key) -> Any:
        """Return a new copy of what a role has returned; None if it has not."""
        ended = self.results.get(key)
        if ended is None:
            return None
        buffers = self.letterbox.views(ended.left) if self.letterbox and ended.left else ()
        return pickle.loads(ended.result, buffers=buffers)  # noqa: S301 - from our own role process

    def begin(self, state: RunState) -> None:
        """Note that the run has been asked for."""
        self.first = state
        self._all_at_once = [{key: role.attempt for key, role in state.roles.items()}]
        self.attempts.append(Attempt(number=0, started=state.since))

    def turned(
        self, before: RunState, event: events.Event, after: RunState, todo: tuple[commands.Command, ...]
    ) -> None:
        """Note that the run has taken a turn."""
        if not todo and isinstance(event.what, _FREQUENT):  # the last one of each says it all
            self._unlogged[type(event.what), event.of] = event
        elif todo or not isinstance(event.what, events.Ticked) or after != before:
            self.log += [(frequent, ()) for frequent in self._unlogged.values()]
            self._unlogged.clear()
            self.log.append((event, todo))
        if isinstance(event.what, events.AgentFailed) and after.ending != before.ending:  # else the run was mended
            self.driver_error = self.agent_errors.get(event.what.address)
        self._joined |= after.roles.keys() - before.roles.keys()
        again = {
            key: role.attempt
            for key, role in after.roles.items()
            if key in before.roles and role.attempt != before.roles[key].attempt
        }
        for key in again:  # what it returned before no longer counts, and it counts its batches from 0
            self.results.pop(key, None)
            self.raised.pop(key, None)
            self.doing.pop(key, None)
            self.rows_seen.pop(key, None)
        if len(again) == len(after.plan.role_keys()):
            self._all_at_once.append(again)
        if after.num_restarts > before.num_restarts:
            self.attempts[-1].ended, self.attempts[-1].reason = event.time, after.losses[-1]
            self.attempts.append(Attempt(number=after.num_restarts, started=event.time))
        if isinstance(event.what, events.Placed):
            self.attempts[-1].places.update(event.what.places)
            joined = {f"{role}/{rank}" for role, rank in self._joined}
            self.attempts[-1].joined.update(dict.fromkeys(joined & event.what.places.keys(), event.time))

    def finished(self, finish: Finish | None, rule: StopRule | None = None) -> None:
        """Note that the run is over; ``rule`` could have ended it before."""
        if rule is not None and finish is not None and finish.verdict is Verdict.OK and not finish.what:
            self._notice_unreported(rule)
        for note in finish.notes if finish is not None else ():
            self.notice(note)
        if finish is None:
            self.outcome = "cancelled"
        elif finish.verdict is Verdict.OK:
            self.outcome = finish.what or "; ".join(["its training roles have returned", *finish.notes])
        else:
            self.outcome = f"{finish.verdict}: {finish.what}"
        self.outcome = masked(self.outcome)
        if self.attempts:
            self.attempts[-1].ended, self.attempts[-1].reason = self.now(), self.outcome
        if self.sent_to is not None:
            self.sent_to.end(self._ending(finish))

    def _notice_unreported(self, rule: StopRule) -> None:
        """Note scores that a rule has waited for and that never came, for example because a name is misspelt."""
        left, seen = set(rule.names), set[str]()
        for score in self.scores:
            if not (left := left - score.keys()):
                return
            seen |= score.keys()
        names = sorted(seen - ORIGIN)
        place = self._job.checkpoint
        was_over = place is not None and place.resume and not names and not self.most_steps  # nothing was left to train
        if left and not was_over:
            reported = f"Roles reported {', '.join(names[:20])}." if names else "Roles reported no scores."
            hint = nearest(min(left), names)
            self.notice(f"stop looks at {', '.join(sorted(left))}, which was never reported. {reported}{hint}")

    def _ending(self, finish: Finish | None) -> Ending:
        good = finish is not None and finish.verdict is Verdict.OK
        cut_short = finish is None or finish.what == INTERRUPTED
        status: Literal["finished", "failed", "stopped"] = "finished" if good else "failed"
        return Ending(status="stopped" if cut_short else status, reason=self.outcome, time=self.now())

    def log_to(self, log: Log) -> None:
        """Send scores, and how the run ends, to a log as well; what it can't send is noticed."""
        self.sent_to, log.tell = log, self.notice

    def result(self, results: dict[str, list[Any]], num_rows: Mapping[tuple[str, int], int], reason: str) -> Result:
        """Return what ``train`` returns of it: besides what its functions returned, by role, what every run leaves."""
        return Result(
            results=results,
            scores=self.scores,
            ledger=self.ledger(num_rows),
            attempts=self.attempts,
            stop_reason=reason,
            run_id=self._job.id,
            notices=self.notices,
        )

    def deliver(self, result: Any) -> None:
        """Let the log keep what the run has left, if there is a log, and something left; waits for it."""
        if self.sent_to is not None and isinstance(result, RunAccount):
            self.sent_to.deliver(result._save, result._trained(), result._example())

    def wait_for_log(self, at_most_s: float | None = None) -> None:
        """Wait until the log, if there is one, has all reports, or that many seconds have passed."""
        if self.sent_to is not None:
            self.sent_to.wait_until_written(at_most_s)

    def moved(self, key: Key, message: Progress | Reported | Value, time: float, interval_s: float) -> bool:
        """Record what a role has reported or sent; return whether that is progress to be noted as an event."""
        match message:
            case Value():
                self.values.append((*key, message.value))
            case Reported():
                self.scores.extend(dict(score) for score in message.scores)
                self._last[key] = self.scores[-1]
                if self.sent_to is not None:
                    self.sent_to.write([dict(score) for score in message.scores])
                for score in message.scores:
                    self.reported_as_progress |= score.keys() & PROGRESS
            case Progress():
                self.doing[key] = (message.doing, message.steps)
                self.rows_seen[key] = message.rows
                if key[0] in self.first.plan.training:
                    self.most_steps = max(self.most_steps, message.steps)
                if not message.moved:
                    return False
        if time - self._progressed.get(key, 0.0) < interval_s:
            return False
        self._progressed[key] = time
        return True

    def record(self, of: RoleProcess, message: Message) -> None:
        """Note a role's picture or account, that it resumes from a checkpoint, or what is shown at once."""
        match message:
            case Pictured():
                self.pictures[of.key] = message
            case Accounted():
                self.accounts.setdefault(of.key, {})[of.attempt] = message.account
            case WentOn():
                self._covers.append((of.key, of.attempt, message.covers))
            case Notice():
                self.notice(message.text, f"{name_of(of.key)}: ")

    def notice(self, text: str, who: str = "") -> None:
        """Keep a notice for the result, and print it; ``who`` is its sender."""
        text = masked(text)
        self.notices.append(text)
        say(f"{who}{text}", level=logging.WARNING)

    def files_skipped(self, num_skipped: Mapping[str, int]) -> None:
        """Note rows that can't be decoded and were left out, by the names of data sets in errors."""
        for what, num in num_skipped.items():
            if num and not self._skipped.get(what):
                self.notice(f"Files left out of {what}, since they can't be decoded: {num:,}.")
            self._skipped[what] = num

    def ledger(self, num_rows: Mapping[tuple[str, int], int]) -> Ledger:
        """Return the account of rows, with what is in checkpoints that roles resumed from.

        A role on a Dask worker that died takes its own account with it.
        """
        accounts = {
            key: {number: [BatchRange.of(record) for record in attempt] for number, attempt in attempts.items()}
            for key, attempts in self.accounts.items()
        }
        covered: dict[Key, list[BatchRange]] = {}
        for loader, attempt, covers in self._covers:
            for key, number in self._started_with(loader, attempt):
                if key[0] == loader[0]:
                    own = accounts.get(key, {}).get(number, [])
                    covered.setdefault(key, []).extend(
                        stretch
                        for run, role, records in covers
                        if role == key[0]
                        for stretch in left_out(map(BatchRange.of, records), own, same_run=run == self._job.id)
                    )
        keys = [
            key for key in (*self._job.plan.role_keys(), *sorted(self._joined)) if key in accounts or key in covered
        ]
        known = {key: accounts.get(key, {}).values() for key in keys}
        ledger = balance(known, self._job.plan.counts, num_rows, covered)
        return replace(ledger, skipped=sum(self._skipped.values()))

    def rows(self, num_rows: Mapping[tuple[str, int], int]) -> dict[str, int]:
        """Return the ledger's sums, for other clients that watch; empty if the run has read no rows."""
        ledger = self.ledger(num_rows)
        sums = {name: getattr(ledger, name) for name in ("read", "trained", "repeated", "dropped")}
        return sums if any(sums.values()) else {}

    def _started_with(self, key: Key, attempt: int) -> list[tuple[Key, int]]:
        """Return the roles that were all started at once with one, and which attempts those are; it is one of them."""
        together = next((all_ for all_ in self._all_at_once if all_.get(key) == attempt), {key: attempt})
        return list(together.items())

    def last_scores(self) -> list[list[Any]]:
        """Return the latest score of each role, for other clients that watch."""
        return [[role, rank, score] for (role, rank), score in self._last.items()]

    def silent(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """Roles of which there is no picture: their agents do not answer."""
        return tuple(key for key in keys if key not in self.pictures)

    def frozen(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """Roles whose processes do not answer their agents."""
        return tuple(key for key in keys if (picture := self.pictures.get(key)) is not None and not picture.stacks)

    def stopped(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """Roles whose processes were stopped by a signal."""
        return tuple(key for key in self.frozen(keys) if self.pictures[key].state == STOPPED)

    def stalled(self, keys: Sequence[Key], state: RunState) -> tuple[str, ...]:
        """Return which roles are to blame for a stall, as far as their pictures tell."""
        named = []
        for key in keys:
            picture = self.pictures.get(key)
            if picture is None:
                named.append(f"{name_of(key)} on {state.roles[key].address}: its agent does not answer")
            elif not picture.stacks:
                named.append(f"{name_of(key)} (process {picture.pid}) does not answer: it is {picture.state}")
        if not named:
            named = [f"{name_of(key)} is {self.pictures[key].doing}" for key in keys if key in self.pictures]
        return tuple(named)

    def diagnosis_text(self, state: RunState) -> str:
        """Return the pictures of all roles, for people."""
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
                f"{name_of(key)} on {role.address}, process {picture.pid}: {role.phase}, {picture.doing} since "
                f"{picture.for_s:g} s, {picture.steps} batches; the process is {picture.state}\n"
                + (_without_ours(picture.stacks) or "  (no Python stacks: the process does not answer)\n")
            )
        return "\n".join(parts)


def _without_ours(stacks: str) -> str:
    """Stacks without the two threads that carry a session's messages, which are always there."""
    threads = [thread for thread in stacks.split("\n\n") if "dask_train/role/link.py" not in thread]
    return "\n\n".join(threads)
