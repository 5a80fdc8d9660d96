"""The session's link of a role in the client's own process: there is no agent, and no other role to wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from dask_train.checkpoint.manifest import Cover
from dask_train.data.rows import Rows
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.driver.history import History
from dask_train.driver.job import Job
from dask_train.errors import ClosedError
from dask_train.process.messages import Reported, WentOn
from dask_train.role.time_spent import TimeSpent
from dask_train.run.messages import Met, RoleProcess
from dask_train.run.stopping import RunProgress
from dask_train.shared_data.in_process import InProcessData

# The only role of the run, and its only attempt.
ROLE = RoleProcess("worker", 0, 0)


class InProcessLink:
    """See :class:`dask_train.role.context.Link`.

    The stopping rule is asked whenever the function asks whether to stop, and after each report.

    Parameters
    ----------
    history
        What the run leaves is noted there.
    data
        What data sets are opened of.
    """

    def __init__(self, job: Job, history: History, data: InProcessData) -> None:
        self._job, self._history, self._data = job, history, data
        self.spent, self.wanted_size = TimeSpent(), 0
        self._began = time.monotonic()
        self._reason = ""
        self._rule_seen = 0
        self._doing = "starting"
        self._shown: Callable[[dict[str, Any]], None] | None = None

    def show(self, shown: Callable[[dict[str, Any]], None]) -> None:
        """Tell how it goes, now, and after each report."""
        self._shown = shown
        self._show()

    @property
    def stop_reason(self) -> str:
        """Why the role is to stop; empty while it is not."""
        rule = self._job.run.stop
        if rule is None or self._reason:
            return self._reason
        history = self._history
        progress = RunProgress(
            steps=history.most_steps, seconds=time.monotonic() - self._began, reported=history.reported_as_progress
        )
        self._reason = rule.met(history.scores, progress, since=self._rule_seen)
        self._rule_seen = len(history.scores)
        return self._reason

    def wait_until_stopped(self) -> None:
        """Raise: no one else is there to stop the run.

        Raises
        ------
        ClosedError
            Unless it is to stop already.
        """
        if not self.stop_reason:
            raise _nobody("to be stopped")

    def report(self, scores: dict[str, Any]) -> None:
        """Note scores."""
        self._history.moved(ROLE.key, Reported(scores=[scores]), self._history.now(), 0.0)
        _ = self.stop_reason
        self._show()

    def ask_to_stop(self, reason: str) -> None:
        """Stop the run."""
        self._reason = self._reason or reason

    def send(self, value: bytes) -> None:
        """Drop a value: its receiver waits here until the run is over."""

    def receive(self, timeout_s: float | None) -> bytes:  # noqa: ARG002 - none will ever come
        """Raise: no one could have sent anything.

        Raises
        ------
        ClosedError
            Always.
        """
        raise _nobody("for a value")

    def moved(self, doing: str, *, batches: int = 0, rows: int = 0) -> None:  # noqa: ARG002 - not shown
        """Note what the role does."""
        self._doing = doing
        self._history.most_steps += batches

    def note(self, doing: str) -> None:
        """Note what the role does."""
        self._doing = doing

    def dataset(self, name: str) -> tuple[int, Table, Rows]:
        """Return a data set of the run, or a published one, mapped."""
        return self._data.open(name)

    def rows_from_elsewhere(self, stream: Stream, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Never asked: all rows are here."""
        raise NotImplementedError

    def open_group(self, stream: Stream, group: int, needed_from: int) -> Rows:
        """Never asked: nothing is streamed."""
        raise NotImplementedError

    def leave(self, stream: Stream) -> None:
        """Never asked: nothing is streamed."""
        raise NotImplementedError

    def meet(self, address: str, size: int = 0, or_size: int = 0, *, joins: bool = False) -> Met:
        """Never asked: there is one rank."""
        raise NotImplementedError

    def lost_attempt(self, peer: int) -> int:
        """Never asked: there is one rank."""
        raise NotImplementedError

    def start_all_again(self, why: str) -> NoReturn:
        """Never asked: there is one rank."""
        raise NotImplementedError

    def shared_among(self, size: int) -> None:
        """Never asked: there is one rank."""
        raise NotImplementedError

    def notice(self, text: str) -> None:
        """Note what is out of the ordinary, which stands in this process's output by now."""
        self._history.notices.append(text)

    def went_on(self, covers: Sequence[Cover]) -> None:
        """Note the batches with which the role continues."""
        self._history.record(ROLE, WentOn(covers=covers))

    def _show(self) -> None:
        if self._shown is None:
            return
        role = {
            "role": ROLE.role,
            "rank": ROLE.rank,
            "phase": "running",
            "attempt": ROLE.attempt,
            "address": "",
            "pid": os.getpid(),
            "doing": self._doing,
            "num_batches": self._history.most_steps,
        }
        self._shown(
            {
                "phase": "running in this process",
                "waiting": "",
                "roles": [role],
                "num_scores": len(self._history.scores),
                "losses": [],
                "outcome": "",
                "num_alive": 1,
                "training": [ROLE.role],
                "last_scores": self._history.last_scores(),
                "scores": self._history.scores,
            }
        )


def _nobody(for_what: str) -> ClosedError:
    return ClosedError(
        f"The worker waits {for_what} in the client's own process, where nobody else is who could do that.",
        change="Pass roles={'worker': 1}.",
    )
