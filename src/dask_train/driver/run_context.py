"""The state and history of a run, its event queue, and its waiters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from dask_train.cluster.peer import POLL_S, Peer
from dask_train.driver.history import History
from dask_train.driver.job import Job
from dask_train.errors import RoleLostError, in_words
from dask_train.run.events import DriverEvent, DriverFailed, Event
from dask_train.run.messages import Message, RoleProcess
from dask_train.run.state import RunState
from dask_train.run.transitions import begin
from dask_train.scheduler.watched import Watched, changed_within
from dask_train.shared_data.run_data import RunData


class RunContext:
    """State of a run that its driver shares with the parts that send commands and handle messages.

    It lives on the client's event loop.

    Attributes
    ----------
    peer, job, data
        Dask client, settings of the run, and the run's data.
    state
        State of the run now.
    history
        What has been reported: scores, results, output, attempts, the event log.
    now
        The time by the run's clock, as all of its events and deadlines have it.
    waiting_for
        Why there is no room yet.
    """

    def __init__(self, peer: Peer, job: Job, data: RunData) -> None:
        self.peer, self.job, self.data = peer, job, data
        self.history = History(job)
        self.now = self.history.now
        self.state: RunState
        self.state, self._todo = begin(job.plan, self.now())
        self.history.begin(self.state)
        self.waiting_for = ""
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._news = Watched()

    @property
    def is_unanswered(self) -> bool:
        """Return whether the run ends because the scheduler does not answer, which is then asked nothing more."""
        return isinstance(self.history.driver_error, RoleLostError)

    async def until(self, met: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until ``met()`` or a deadline by ``time.monotonic()``; return whether it is met.

        Only waits for the run itself may have no deadline, as the run has its own.
        """
        while not met():
            left_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            if left_s <= 0:
                return False
            await changed_within(self._news.changed, left_s)
        return True

    def tell(self) -> None:
        """Wake all waiters."""
        self._news.wake()

    def happened(self, what: Message | DriverEvent, of: RoleProcess | None = None) -> None:
        """Queue an event of the run, as of now."""
        self._events.put_nowait(Event(self.now(), what, of))

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Run a coroutine beside the loop; if it fails, so does the run."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.history.driver_error = error
            self.happened(DriverFailed(error=in_words(error)))
