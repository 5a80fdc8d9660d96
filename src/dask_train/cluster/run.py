"""The handle of a run: what a user holds while roles work."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dask_train.cluster.driver import Driver
from dask_train.cluster.mirror import seconds_or
from dask_train.cluster.on_worker.reading import Part, read_new
from dask_train.cluster.peer import POLL_S, Peer
from dask_train.cluster.preflight import pickled
from dask_train.cluster.run_errors import error_of
from dask_train.cluster.watching import Watch, watch_until
from dask_train.errors import ClosedError, DaskTrainError, StalledError
from dask_train.result import Result
from dask_train.run.commands import Finish, Key, Verdict
from dask_train.run.replay import to_record
from dask_train.run.state import ALIVE


class Run:
    """A run that has been started with ``train(..., wait=False)``.

    When nobody holds it any more, or its client closes, the run is stopped, as Dask cancels a task without futures.

    Attributes
    ----------
    id
        Its name, as ``dask train list`` shows it.
    """

    def __init__(self, driver: Driver, finish: Callable[[Result], Any] | None = None) -> None:
        self.id = driver.job.id
        self._driver, self._finish = driver, finish
        self._peer: Peer = driver.peer
        self._output: dict[Key, str] = {}
        self._peer.spawn(driver.drive)
        self._finalizer = weakref.finalize(self, _StopForgotten(driver))
        self._finalizer.atexit = False  # the client's own end ends the run

    # What it says

    def status(self) -> dict[str, Any]:
        """The run now: its phase, and each role's phase, attempt, Dask worker, process and batches.

        Returns
        -------
        dict
            ``phase``, ``waiting`` (for what, while there is no room), ``roles`` (a list of dicts), ``num_scores``,
            ``losses`` (their causes) and ``outcome`` (empty until the end). No message is sent for it.
        """
        summary = self._driver.summary()
        names = ("role", "rank", "phase", "attempt", "address", "pid", "doing", "num_batches")
        roles = [dict(zip(names, role, strict=True)) for role in summary.pop("roles")]
        summary.pop("last_scores")
        return {**summary, "roles": roles}

    def scores(self) -> Scores:
        """Every score, from the first on, then live until the run ends; none merged, none left out.

        Returns
        -------
        iterator, for ``for``; with an asynchronous client for ``async for``
            Of dicts: what was reported, plus role, rank, attempt and time. It ends when the run does; how it ended is
            for :meth:`result` to say.
        """
        return Scores(self, self._driver)

    def send(self, value: Any, role: str = "worker", rank: int | None = None) -> Any:
        """Send a value to a role, where :meth:`Session.receive` gives it.

        It goes through the scheduler, and waits for a role that has not been started yet. One that starts again does
        not get what was sent to it before.

        Parameters
        ----------
        value
            Anything that can be pickled.
        role, rank
            Which role; all of that name where ``rank`` is None.

        Returns
        -------
        None; an awaitable of it with an asynchronous client.

        Raises
        ------
        ValueError
            The run has no such role.
        TypeError
            The value can't be pickled.
        """
        return self._peer.run(self._send, self._keys(role, rank), pickled("value", value))

    async def _send(self, keys: list[Key], value: bytes) -> None:
        self._driver.send(keys, value)

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next value that a role has sent with :meth:`Session.send`, in order, each once.

        Parameters
        ----------
        timeout_s
            How long to wait, in seconds; 0 gives what is there, None waits until the run ends.

        Returns
        -------
        role, rank, value
            An awaitable of them with an asynchronous client.

        Raises
        ------
        StalledError
            None has come in time.
        ClosedError
            None will: the run is over.
        """
        return self._peer.run(self._receive, timeout_s)

    async def _receive(self, timeout_s: float | None) -> tuple[str, int, Any]:
        driver, values = self._driver, self._driver.chronicle.values
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not await driver.until(lambda: bool(values) or driver.over, deadline):
            raise StalledError(f"No role of run {self.id} has sent a value within {timeout_s:g} s.")
        if not values:
            raise ClosedError(f"Run {self.id} is over: {driver.chronicle.outcome}.")
        role, rank, value = values.popleft()
        return role, rank, pickle.loads(value)  # noqa: S301 - from our own role process

    def logs(self, role: str | None = None, rank: int | None = None) -> Any:
        """What roles have printed, the last megabyte of each; 64 kB of those that have ended.

        Parameters
        ----------
        role, rank
            One role, as it printed it. Without a rank, or without both, several: each line with its role in front.

        Returns
        -------
        str, or an awaitable of it with an asynchronous client.

        Raises
        ------
        ValueError
            The run has no such role.
        """
        return self._peer.run(self._logs, self._keys(role, rank), role is None or rank is None)

    def _keys(self, role: str | None, rank: int | None) -> list[Key]:
        keys = [key for key in self._driver.job.plan.role_keys() if key[0] == (role or key[0])]
        keys = [key for key in keys if rank is None or key[1] == rank]
        if not keys:
            counts = ", ".join(f"{name}={count}" for name, count in self._driver.job.plan.counts.items())
            raise ValueError(f"There is no role {role!r} {'' if rank is None else rank} in this run; it has {counts}.")
        return keys

    async def _logs(self, keys: list[Key], prefixed: bool) -> str:
        await self._fetch_output()
        roles = {key: self._driver.state.roles[key] for key in keys}
        alive = {key: role.address for key, role in roles.items() if role.phase in ALIVE and role.address}
        if alive and not self._driver.over:
            with suppress(DaskTrainError, OSError):  # TimeoutError is one
                where = list(set(alive.values()))
                asking = self._peer.on_workers(read_new, self.id, [], workers=where, on_error="ignore")
                answers = await asyncio.wait_for(asking, POLL_S)
                self._take_output(part for parts in answers.values() for part in parts or () if part[:2] in alive)
        texts = {key: self._output.get(key, "") for key in keys}
        if not prefixed:
            return texts[keys[0]]
        return "".join(
            f"[{role} {rank}] {line}\n" for (role, rank), text in texts.items() for line in text.splitlines()
        )

    async def _fetch_output(self) -> None:
        with suppress(DaskTrainError):
            answer = await self._peer.ask("train_run_show", run=self.id, output=True)
            self._take_output(answer.get("output", ()))

    def _take_output(self, parts: Iterable[Part]) -> None:
        """The last attempt's part comes last."""
        for role, rank, _, _, data in parts:
            self._output[role, rank] = data.decode(errors="replace")

    def diagnose(self) -> Any:
        """What each role does now: its phase, its last word, the state of its process, the stacks of its threads.

        Takes half a second, of which the roles notice nothing.

        Returns
        -------
        str, or an awaitable of it with an asynchronous client.
        """
        return self._peer.run(self._driver.picture)

    def event_log(self, path: str | Path) -> None:
        """Write what happened to the run, and what was done, as JSON lines; it replays to the same commands."""
        chronicle = self._driver.chronicle
        with Path(path).open("w") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in to_record(chronicle.first, chronicle.log))

    # How it ends

    def stop(self, reason: str = "it was stopped") -> Any:
        """End the run in order: roles see ``should_stop()``, and are killed after ``train.stop.timeout`` (5 s).

        Returns when nothing of the run is left, None; an awaitable of that with an asynchronous client.
        """
        return self._peer.run(self._stop, reason)

    async def _stop(self, reason: str) -> None:
        self._driver.stop(reason)
        await self._wait()

    async def replaced(self) -> None:
        """End the run because the notebook's cell that has started it runs again; on the event loop."""
        if not self._driver.over:
            await self._stop("its cell was run again")

    def result(self, timeout_s: float | None = None, *, watch: Watch | None = None) -> Any:
        """Wait for the end of the run.

        Parameters
        ----------
        timeout_s
            Seconds; None waits for as long as the run makes progress, whose own deadlines end it.
        watch
            Called four times a second while this waits, in this thread: with :meth:`status` and with ``num_alive``,
            ``training`` (role names) and ``last_scores`` (role, rank, score). Not with an asynchronous client.

        Returns
        -------
        Result, or an awaitable of it with an asynchronous client.

        Raises
        ------
        PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
            How the run ended, if not well. Notes tell the role's traceback and the end of its output.
        StalledError
            It still goes on after ``timeout_s``.
        KeyboardInterrupt
            Ctrl-C, or an interrupt of a notebook, while this waits: the run has been stopped.
        """
        limit_s = None if timeout_s is None else seconds_or(1.0, timeout_s)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        if self._peer.asynchronous:
            if watch is not None:
                raise ValueError("watch= is for clients that wait; with an asynchronous one, ask status() beside it.")
            return self._result(limit_s, deadline)
        try:
            if watch is not None:
                watch_until(self._driver, self.status, watch, deadline)
            return self._peer.run(self._result, limit_s, deadline)
        except KeyboardInterrupt:
            if not self._driver.over:
                self.stop("it was interrupted")
            if self._finish is not None:  # a model keeps what it has learnt so far
                with suppress(DaskTrainError):
                    self._peer.run(self._result, None, None)
            raise

    async def _result(self, timeout_s: float | None, deadline: float | None) -> Any:
        await self._wait(timeout_s, deadline)
        finish = self._driver.finish or Finish(verdict=Verdict.DRIVER, what="The run's driver was cancelled.")
        chronicle = self._driver.chronicle
        if finish.verdict is not Verdict.OK:
            await self._fetch_output()
            error = error_of(self.id, finish, chronicle, self._output)
            raise error from error.__cause__
        results: dict[str, list[Any]] = {}
        for key in self._driver.job.plan.role_keys():
            pickled = chronicle.results.get(key)
            value = None if pickled is None else pickle.loads(pickled)  # noqa: S301 - from our own role process
            results.setdefault(key[0], []).append(value)
        result = Result(
            results=results,
            scores=chronicle.scores,
            ledger=chronicle.ledger(self._driver.data.num_rows()),
            attempts=chronicle.attempts,
            stop_reason=finish.what,
            run_id=self.id,
        )
        return result if self._finish is None else self._finish(result)

    async def _wait(self, timeout_s: float | None = None, deadline: float | None = None) -> None:
        if not await self._driver.until(lambda: self._driver.over, deadline):
            raise StalledError(
                f"Run {self.id} goes on after {timeout_s:g} s: {self._driver.state}.",
                change="Wait longer, or end it with run.stop().",
            )

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self._driver.chronicle.outcome or self._driver.state}>"


class Scores:
    """The scores of a run as they come; made by :meth:`Run.scores`."""

    def __init__(self, run: Run, driver: Driver) -> None:
        self._run = run  # held: a run that nobody holds is stopped
        self._driver = driver

    async def _more(self, seen: int) -> list[dict[str, Any]]:
        """What has come since, as soon as there is something; nothing when the run is over."""
        scores = self._driver.chronicle.scores
        await self._driver.until(lambda: len(scores) > seen or self._driver.over)
        return scores[seen:]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        seen = 0
        while more := self._driver.peer.run(self._more, seen):
            yield from more
            seen += len(more)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        seen = 0
        while more := await self._more(seen):
            for score in more:
                yield score
            seen += len(more)


class _StopForgotten:
    """Stops the run of a handle that nobody holds any more."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self) -> None:
        if not self._driver.over:
            with suppress(RuntimeError):  # the client's loop has ended, and the run with it
                self._driver.peer.loop.add_callback(self._driver.stop, "nobody holds it any more")
