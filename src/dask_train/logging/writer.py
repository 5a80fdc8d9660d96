"""A thread that writes to one place: what can't be written is tried again, in the background."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from dask_train.logging.base import Score, Sink

# How long scores are gathered before they are written at once.
BATCH_S = 0.5
# How long the first and the longest pause is after something could not be written.
PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
# How much later than its deadline the thread may end before it counts as stuck.
SLACK_S = 0.5


@dataclass
class _Job:
    """Something to be done for one sink: scores to be written, or another word to it."""

    sink: Sink
    scores: list[Score] | None = None
    say: Callable[[], None] | None = None
    num_scores: int = field(default=0)


class Writer:
    """Writes to one place, in order.

    Parameters
    ----------
    place
        In words.
    tell
        Called with a sentence where the place takes nothing, where it does again, and with what it never took.
    timeout_s
        How long what is left is tried once nothing more comes.

    Notes
    -----
    The thread begins with the first thing to write, and ends when there is nothing left after :meth:`close`, or after
    the timeout. More that comes later, such as a model, starts another one.
    """

    def __init__(self, place: str, tell: Callable[[str], None], timeout_s: float) -> None:
        self._place, self._tell, self._timeout_s = place, tell, timeout_s
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closes_at: float | None = None
        self._error = ""

    def write(self, sink: Sink, scores: Sequence[Score]) -> None:
        """Let scores be written; returns at once."""
        with self._changed:
            last = self._jobs[-1] if self._jobs else None
            if last is not None and last.sink is sink and last.scores is not None and len(self._jobs) > 1:
                last.scores += scores  # the first one may be in hand
                last.num_scores += len(scores)
                return
        self._put(_Job(sink, scores=list(scores), num_scores=len(scores)))

    def say(self, sink: Sink, word: Callable[..., None], *args: object) -> None:
        """Let a method of a sink be called, in its turn; returns at once."""
        self._put(_Job(sink, say=partial(word, *args)))

    def close(self) -> None:
        """Nothing more comes for now: what is left is tried until the timeout."""
        with self._changed:
            self._closes_at = time.monotonic() + self._timeout_s
            self._changed.notify_all()

    def wait_until_written(self, at_most_s: float | None = None) -> None:
        """Wait until all is written, or given up, or that many seconds have passed; after :meth:`close`."""
        thread = self._thread
        if thread is None:
            return
        thread.join(SLACK_S + (self._timeout_s if at_most_s is None else min(at_most_s, self._timeout_s)))
        if thread.is_alive():
            self._tell(f"{self._place} is still being written to: it takes longer than this waits.")

    def _put(self, job: _Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"dask-train-logs-{self._place}", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause_s = PAUSE_S
        while (job := self._next()) is not None:
            try:
                self._carry_out(job)
            except BaseException as error:  # of whatever kind, SystemExit too: the run does not depend on it
                self._failed(error)
                self._wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = PAUSE_S
                with self._changed:
                    self._jobs.popleft()
                if self._error:
                    self._error = ""
                    self._tell(f"{self._place} takes what it is sent again.")
                if job.scores is not None:
                    self._wait(BATCH_S)

    def _carry_out(self, job: _Job) -> None:
        if job.scores is None:
            assert job.say is not None
            job.say()
            return
        scores, job.scores = job.scores, []  # given once, see `Sink.write`
        job.sink.write(scores)

    def _next(self) -> _Job | None:
        """Return what is to be done; None if there is nothing more, or it is given up, and the thread ends."""
        with self._changed:
            while not self._jobs and self._closes_at is None:
                self._changed.wait(LONGEST_PAUSE_S)
            if self._jobs and (self._closes_at is None or not self._error or time.monotonic() < self._closes_at):
                return self._jobs[0]
            if self._jobs:
                num_scores = sum(job.num_scores for job in self._jobs)
                self._tell(f"{self._place} never took {_missed(num_scores, len(self._jobs))}: {self._error}")
                self._jobs.clear()
            self._thread = None
            return None

    def _wait(self, seconds: float) -> None:
        """Wait; at the end, no longer than there is time, and not at all where the place takes what it is sent."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._error or self._closes_at is None:
                left_s = min(until, until if self._closes_at is None else self._closes_at) - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def _failed(self, error: BaseException) -> None:
        if not self._error:
            self._tell(f"{self._place} takes nothing now: {_in_words(error)} The run continues, and tries it again.")
        self._error = _in_words(error)


def _missed(num_scores: int, num_jobs: int) -> str:
    if num_scores:
        return f"{num_scores:,} score{'' if num_scores == 1 else 's'}"
    return f"{num_jobs} word{'' if num_jobs == 1 else 's'} about how the run ended"


def _in_words(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}." if text else f"{type(error).__name__}."
