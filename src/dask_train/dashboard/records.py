"""What the page and the metrics read: the runs of the scheduler's plug-in for runs, and what was heard of each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .logged_runs import LoggedRuns
from .searches import Searches
from .traces import Trace, scores_in

logger = logging.getLogger("distributed.scheduler.train")
# Upper bounds of what a launch may take, for the histogram of all.
LAUNCH_BUCKETS_S = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# How a run's outcome begins that ended by a fault: ``dask_train.run.commands.Verdict``.
FAULTS = frozenset(
    {"PlacementError", "LaunchError", "RoleFailedError", "RoleLostError", "StalledError", "DataError", "DaskTrainError"}
)
ENDINGS = {"cancelled": "cancelled", "its client left": "client lost", "nothing was heard": "client lost"}


class Records:
    """The runs of a scheduler, and what was heard of them.

    Parameters
    ----------
    run_requests
        ``TrainPlugin.run_requests``.
    """

    def __init__(self, run_requests: Any) -> None:
        self.scheduler = run_requests.scheduler
        self.known = run_requests.runs
        self.placement_queue = run_requests.placement_queue
        self.traces: dict[str, Trace] = {}
        self.searches = Searches()
        self.logged = LoggedRuns()
        self.num_started = 0
        self.num_ended: Counter[str] = Counter()  # by how they ended
        self.num_restarts = 0
        self.num_scores = 0
        self.num_batches: Counter[str] = Counter()  # by role
        self.num_rows: Counter[str] = Counter()  # by class of the ledger
        self.seconds: dict[tuple[str, int, str], float] = {}  # by role, rank and what they went to
        self.launches: list[int] = [0] * (len(LAUNCH_BUCKETS_S) + 1)  # how many took how long
        self.launches_s = 0.0
        self._ended: set[str] = set()
        self._complained = False
        self.known.observers.append(self.on_events)

    def runs(self) -> list[Any]:
        """Return all runs: live ones, then those that are over; the newest first."""
        going_on = sorted(self.known.by_id.values(), key=lambda run: -run.started)
        return [*going_on, *reversed(self.known.records)]

    def waiting(self) -> list[Any]:
        """Return who waits for room, in order."""
        return list(self.placement_queue.waiting)

    def on_events(self, run: Any, events: Sequence[Any] = ()) -> None:
        """Record what a run has reported; never raises: what is only shown must not end what is run."""
        try:
            self._note(run, events, time.time())
        except Exception:
            if not self._complained:
                logger.exception("The page of runs could not read what run %s told.", run.id)
            self._complained = True

    def _note(self, run: Any, events: Sequence[Any], now: float) -> None:
        if run.id not in self.traces:
            self._begin(run)
        trace = self.traces[run.id]
        for key, seconds in trace.take_progress(events, now):
            self.seconds[key] = self.seconds.get(key, 0.0) + seconds
        scores = scores_in(events)
        for score in scores:
            trace.score(score, now)
        self.num_scores += len(scores)
        if not events:
            self._sum_up(run, trace, now)

    def _begin(self, run: Any) -> None:
        there = {other.id for other in self.runs()}
        self.traces = {of: trace for of, trace in self.traces.items() if of in there}
        self._ended &= there
        self.traces[run.id] = Trace()
        self.num_started += 1

    def _sum_up(self, run: Any, trace: Trace, now: float) -> None:
        restarts, batches, was_running = trace.num_restarts, Counter(trace.num_batches), trace.running_since
        trace.summary(run.summary, now)
        trace.spans.summary(run.summary, now, over=run.over)
        self.searches.tell(run.id, run.summary.get("trials", ()))
        self.num_restarts += trace.num_restarts - restarts
        self.num_batches.update({role: count - batches[role] for role, count in trace.num_batches.items()})
        if trace.running_since and not was_running and run.placed:
            took_s = trace.running_since - run.placed
            self.launches[sum(took_s > bound for bound in LAUNCH_BUCKETS_S)] += 1
            self.launches_s += took_s
        if run.over and run.id not in self._ended:
            self._ended.add(run.id)
            self.num_rows.update(run.summary.get("rows", {}))
            self.num_ended[ending_of(run.summary)] += 1


def ending_of(summary: Any) -> str:
    """Return how a run ended, in a word."""
    outcome = str(summary.get("outcome", ""))
    kind, colon, _ = outcome.partition(": ")
    if colon and kind in FAULTS:
        return kind
    return ENDINGS.get(outcome.partition(" of its client")[0], "ok")
