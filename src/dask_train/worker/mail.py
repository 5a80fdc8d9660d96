"""An agent's correspondence with its run's driver, by way of the scheduler: commands in order, events in bundles.

Both are numbered. Where a connection breaks while an answer is awaited, the question is asked again, and it is unknown
whether the first one had arrived: by their numbers the scheduler leaves out the events that it has, and gives the
commands that were not seen.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from dask_train.errors import DaskTrainError, RoleLostError

# Reports are collected for this long before they are sent on: 1,000 messages a second, sent singly, cost 13% of a
# scheduler's core, bundled 2%.
BUNDLE_S = 0.05
# How long a scheduler that does not answer is asked again before the roles are ended.
PATIENCE_S = 2.0
# Between two questions to a scheduler that does not answer.
ASK_AGAIN_S = 0.2
# How long the last lines of output may take when the run is over.
LAST_S = 1.0

Output = tuple[str, int, int, int, bytes]


class Scheduler(Protocol):
    """The peer that is asked; see :class:`~dask_train.cluster.peer.Peer`."""

    @property
    def poll_s(self) -> float:
        """How long a long poll may last."""

    async def ask(self, handler: str, **message: Any) -> dict[str, Any]:
        """Call a handler of our scheduler plug-in."""


class Mail:
    """The mail of an agent; lives on an agent's event loop.

    Parameters
    ----------
    scheduler
        The peer that is asked.
    run, agent
        Whose correspondence it is.
    on_worker_loop
        Awaits a coroutine on the Dask worker's event loop.
    is_closing
        Whether the Dask worker closes, so that nothing is asked again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        run: str,
        agent: str,
        on_worker_loop: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
        is_closing: Callable[[], bool],
    ) -> None:
        self._scheduler, self._of = scheduler, {"run": run, "agent": agent}
        self._on_worker_loop, self._is_closing = on_worker_loop, is_closing
        self._events: list[Any] = []
        self._num_sent = 0
        self._output: list[Output] = []
        self._due = math.inf  # when what waits has to go, by the event loop's clock
        self._is_due_sooner = asyncio.Event()
        self._is_sent = asyncio.Event()  # all that was put is with the scheduler
        self._is_sent.set()

    async def _ask(self, handler: str, **message: Any) -> dict[str, Any]:
        """Ask the scheduler about this run; when it can't be reached for some seconds, the run is over here."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                answer = await self._on_worker_loop(self._scheduler.ask(handler, **self._of, **message))
            except RoleLostError:
                if loop.time() > deadline or self._is_closing():
                    return {"status": "gone"}
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                return dict(answer)

    async def commands(self) -> AsyncIterator[Any]:
        """Yield the driver's commands, in order, each once, until the run is over."""
        seen = 0
        poll_s = self._scheduler.poll_s
        while (answer := await self._ask("train_run_next", seen=seen, timeout_s=poll_s))["status"] == "OK":
            for command in answer["commands"]:
                seen += 1
                yield command

    def put(self, event: Any, *, within_s: float) -> int:
        """Send an event after those before, with the next bundle, within a fixed time; return how many wait now."""
        self._events.append(event)
        self._is_sent.clear()
        due = asyncio.get_running_loop().time() + within_s
        if due < self._due:
            self._due = due
            self._is_due_sooner.set()
        return len(self._events)

    def put_output(self, output: Output) -> None:
        """Send what a role has printed last with the next bundle: role, rank, attempt, its end in bytes, and it."""
        self._output.append(output)

    async def send(self, gone: Callable[[], None]) -> None:
        """Send what is put, until the run is over; ``gone`` is called whenever all that waited has gone."""
        while True:
            await self._until_due()
            events, self._events = self._events, []
            output = list(self._output)
            message = {"number": self._num_sent, "events": events, "output": output}
            answer = await self._ask("train_run_tell", **message, timeout_s=self._scheduler.poll_s)
            self._num_sent += len(events)
            del self._output[: len(output)]  # not before it has arrived: where this is cut short, the end sends it
            if answer["status"] != "OK":
                return
            if not self._events:
                self._is_sent.set()
            gone()

    async def finish(self) -> None:
        """Wait until the scheduler has all that was put, and tell it that nothing else comes."""
        await self._is_sent.wait()
        await self._ask("train_run_agent_ends")

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (left_s := self._due - loop.time()) > 0:
            self._is_due_sooner.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_due_sooner.wait(), None if math.isinf(left_s) else left_s)
        self._due = math.inf

    async def send_last_output(self) -> None:
        """Send what is left of output: it is not awaited, but is what later readers want."""
        if self._output:
            last = self._scheduler.ask(
                "train_run_tell", **self._of, number=self._num_sent, events=[], output=self._output, timeout_s=LAST_S
            )
            with suppress(DaskTrainError, TimeoutError):
                await asyncio.wait_for(self._on_worker_loop(last), LAST_S)
