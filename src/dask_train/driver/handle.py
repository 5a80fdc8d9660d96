"""The handle of a run: what ``wait=False`` returns while roles work."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.cluster.peer import Peer
from dask_train.config import seconds_or
from dask_train.driver.history import INTERRUPTED
from dask_train.driver.loop import Driver
from dask_train.driver.preflight import pickled
from dask_train.driver.printed import Printed
from dask_train.driver.resizing import check_resize, resize
from dask_train.driver.result import Result, leave_result
from dask_train.driver.run_errors import error_of
from dask_train.driver.scores import Scores
from dask_train.driver.shown_run import html_of, show_live
from dask_train.driver.watching import Watch, status_of, watch_until
from dask_train.errors import ClosedError, StalledError
from dask_train.input_errors import raises_at_the_call
from dask_train.logging.log import INTERRUPTED_S
from dask_train.masking import mask_error, masked
from dask_train.report.progress import RunDisplay
from dask_train.run.commands import Finish, Key, Verdict
from dask_train.run.replay import to_record

# What the verb returns that has started the run.
R = TypeVar("R")


class Run(Generic[R]):
    """A run that has been started with ``wait=False``, by ``train`` or ``fit``.

    When there is no reference to it any more, or its client closes, the run is stopped, as Dask cancels a task without
    futures.

    Attributes
    ----------
    id
        Its name, as ``dask train list`` shows it.
    """

    def __init__(
        self,
        driver: Driver,
        finish: Callable[[Result], R] | None = None,
        display: Callable[[bool | None], Any] = RunDisplay,
    ) -> None:
        self.id = driver.job.id
        self._driver, self._finish, self._display = driver, finish, display
        self._peer: Peer = driver.peer
        self._printed = Printed(driver)
        self._peer.spawn(driver.drive)
        self._finalizer = weakref.finalize(self, _StopForgotten(driver))
        self._finalizer.atexit = False  # the client's own end ends the run

    # What it reports

    def status(self) -> dict[str, Any]:
        """Return the state of the run: its phase, and each role's phase, attempt, Dask worker, process and batches.

        Returns
        -------
        dict
            ``phase``, ``waiting`` (for what, while there is no room), ``roles`` (a list of dicts), ``num_scores``,
            ``losses`` (their causes) and ``outcome`` (empty until the end). No message is sent for it.
        """
        return status_of(self._driver)

    def scores(self) -> Scores:
        """Every score, from the first on, then live until the run ends; none merged, none left out.

        Returns
        -------
        iterator, for ``for``; with an asynchronous client for ``async for``
            Of dicts: what was reported, plus role, rank, attempt and time. It ends when the run does; how it ended is
            for :meth:`result` to say.
        """
        return Scores(self, self._driver)

    @raises_at_the_call
    def send(self, value: Any, role: str = "worker", rank: int | None = None) -> Any:
        """Send a value to a role, where :meth:`Session.receive` gives it.

        It goes through the scheduler, and waits for a role that has not been started yet. One that starts again does
        not get what was sent to it before.

        Parameters
        ----------
        value
            Anything that can be pickled.
        role, rank
            Role and rank of the receiver. Default of ``rank``: None, all of that role.

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
        return self._peer.run(self._send, self._printed.keys(role, rank), pickled("value", value))

    async def _send(self, keys: list[Key], value: bytes) -> None:
        self._driver.send(keys, value)

    @frees_its_thread
    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next value that a role has sent with :meth:`Session.send`, in order, each once.

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
            None will: the run is over. Where the client waits here, in :meth:`result` or for :meth:`scores`, and all
            training roles wait for values from it, the run ends as stalled after ``train.progress.timeout``.
        """
        return self._peer.run(self._receive, timeout_s)

    async def _receive(self, timeout_s: float | None) -> tuple[str, int, Any]:
        driver, values = self._driver, self._driver.history.values
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with driver.awaited():
            is_ready = await driver.until(lambda: bool(values) or driver.over, deadline)
        if not is_ready:
            raise StalledError(f"No role of run {self.id} has sent a value within {timeout_s:g} s.")
        if not values:
            raise ClosedError(f"Run {self.id} is over: {driver.history.outcome}.")
        role, rank, value = values.popleft()
        return role, rank, pickle.loads(value)  # noqa: S301 - from our own role process

    @raises_at_the_call
    def logs(self, role: str | None = None, rank: int | None = None) -> Any:
        """Return what roles have printed, the last megabyte of each; 64 kB of those that have ended.

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
        printed = self._printed
        return self._peer.run(printed.logs, printed.keys(role, rank), role is None or rank is None)

    def diagnose(self) -> Any:
        """Return what each role does now: its phase, its last word, its process's state, its threads' stacks.

        Takes half a second, of which the roles notice nothing.

        Returns
        -------
        str, or an awaitable of it with an asynchronous client.
        """
        return self._peer.run(self._driver.picture)

    def event_log(self, path: str | Path) -> None:
        """Write what happened to the run, and what was done, as JSON lines; it replays to the same commands.

        Parameters
        ----------
        path
            File to write.
        """
        history = self._driver.history
        with Path(path).open("w") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in to_record(history.first, history.log))

    @raises_at_the_call
    @frees_its_thread
    def resize(self, workers: int, timeout_s: float = 0.0) -> Any:
        """Change the number of workers of a torch module or Keras model, from the end of the step in hand.

        Workers that join get weights and optimizer state from the others, which keep theirs; those that leave do so in
        order. Global batches stay the same: each row is still trained once in an epoch. It waits until the run has that
        many workers. From then on, a run of ``workers=(2, 8)`` does not follow the Dask workers any more. With
        parameter servers, each worker continues at its own pace up to a batch that none has begun, and from there on
        as one of so many.

        Parameters
        ----------
        workers
            Number of workers, at least 2; with parameter servers at least 1.
        timeout_s
            Seconds to wait for room for those that join. Default: 0, there has to be room now.

        Returns
        -------
        None; an awaitable of it with an asynchronous client.

        Raises
        ------
        ValueError, TypeError
            That many workers can't train it, or the run is not one of ``dt.fit(..., recovery="in_place")``, or of
            ``dt.fit(..., ps=1)``, with several workers and without ``streaming=``. Or ``timeout_s`` is no number of
            seconds.
        PlacementError
            There is no room for more, or those that were to join were lost. The run continues with as many as before.
        ClosedError
            The run is over.
        """
        check_resize(self._driver, workers, timeout_s)
        return self._peer.run(resize, self._driver, workers, timeout_s)

    # How it ends

    @frees_its_thread
    def stop(self, reason: str = "it was stopped") -> Any:
        """End the run in order: roles see ``should_stop()``, and are killed after ``train.stop.timeout`` (5 s).

        Nothing of the run is left when this returns.

        Parameters
        ----------
        reason
            Reason, for the result's ``stop_reason``.

        Returns
        -------
        None
            Or an awaitable of None with an asynchronous client.
        """
        return self._peer.run(self._stop, reason)

    async def _stop(self, reason: str) -> None:
        self._driver.stop(reason)
        await self._driver.until(lambda: self._driver.over)

    def stop_soon(self, reason: str) -> None:
        """Ask the run to end, and don't wait for that; from any thread.

        Parameters
        ----------
        reason
            Reason, for the result's ``stop_reason``.
        """
        if not self._driver.over:
            with suppress(RuntimeError):  # the client's loop has ended, and the run with it
                self._peer.loop.add_callback(self._driver.stop, reason)

    async def replaced(self) -> None:
        """End the run because its notebook cell runs again; on the event loop."""
        if not self._driver.over:
            await self._stop("its cell was run again")

    @raises_at_the_call
    @frees_its_thread
    def result(self, timeout_s: float | None = None, *, watch: Watch | None = None) -> R:
        """Wait for the end of the run.

        Parameters
        ----------
        timeout_s
            Seconds; None waits for as long as the run makes progress, whose own deadlines end it.
        watch
            Called four times a second while this waits, in this thread: with :meth:`status` and with ``num_alive``,
            ``training`` (role names), ``last_scores`` (role, rank, score) and ``scores``, the list of all, which grows.
            Not with an asynchronous client. Default: nothing is called.

        Returns
        -------
        Result, or an awaitable of it with an asynchronous client.

        Raises
        ------
        PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
            How the run ended, if not well. Notes have the role's traceback and the end of its output.
        StalledError
            It still runs after ``timeout_s``.
        BaseException
            Whatever a signal's handler raises while this waits, KeyboardInterrupt above all: the run has been stopped,
            and what it has left by then is the exception's attribute ``result``.
        """
        limit_s = None if timeout_s is None else seconds_or(1.0, timeout_s)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        if self._peer.asynchronous:
            if watch is not None:
                raise ValueError("watch= is for clients that wait; with an asynchronous one, ask status() beside it.")
            later: Any = self._result(limit_s, deadline)
            return later  # an awaitable, as Dask's own verbs return with such a client
        try:
            with self._driver.awaited():
                if watch is not None:
                    watch_until(self._driver, watch, deadline)
                over = self._peer.run(self._driver.until, lambda: self._driver.over, deadline)
        except BaseException as error:
            self.end_for(error)
            raise
        if not over:
            raise self._goes_on(limit_s)
        try:
            # In this thread, whose line warnings then name; a large model does not hold up the client's event loop.
            outcome = self._finished(self._peer.run(self._outcome))
        except Exception:
            self._driver.history.wait_for_log()
            raise
        try:
            self._driver.history.deliver(outcome)
        except BaseException as error:  # a Ctrl-C, while places of the log are waited for
            leave_result(error, outcome)
            raise
        return outcome

    def end_for(self, error: BaseException) -> None:
        """Stop the run because of what was raised where it was waited for.

        A model keeps what it has learnt, and the error's attribute ``result`` is what the verb would have returned.

        Parameters
        ----------
        error
            What was raised.
        """
        if self._driver.over and isinstance(error, Exception):
            return  # how the run ended
        interrupted = isinstance(error, KeyboardInterrupt)
        with suppress(Exception):  # a client that is closed has ended it
            self.stop(INTERRUPTED if interrupted else f"{type(error).__name__} was raised where it was awaited")
            leave_result(error, self._finished(self._peer.run(self._outcome)))
            self._driver.history.wait_for_log(INTERRUPTED_S)

    async def _result(self, timeout_s: float | None, deadline: float | None) -> Any:
        with self._driver.awaited():
            over = await self._driver.until(lambda: self._driver.over, deadline)
        if not over:
            raise self._goes_on(timeout_s)
        outcome = self._finished(await self._outcome())
        if self._driver.history.sent_to is not None:
            await asyncio.to_thread(self._driver.history.deliver, outcome)
        return outcome

    def _goes_on(self, timeout_s: float | None) -> StalledError:
        return StalledError(
            f"Run {self.id} still runs after {timeout_s:g} s: {self._driver.state}.",
            change="Wait longer, or end it with run.stop().",
        )

    async def _outcome(self) -> Result:
        """Return what the run has left, once it is over.

        Raises
        ------
        DaskTrainError
            It did not end well.
        """
        finish = self._driver.finish or Finish(verdict=Verdict.DRIVER, what="The run's driver was cancelled.")
        history = self._driver.history
        if finish.verdict is not Verdict.OK:
            if not self._driver.is_unanswered:
                await self._printed.fetch()
            error = error_of(self.id, finish, history, self._printed.texts, self._driver.job.refuses)
            mask_error(error)
            try:
                raise error from error.__cause__
            finally:
                del error  # its traceback has this frame, which would keep it and all that the run had
        results: dict[str, list[Any]] = {}
        for key in self._driver.state.plan.role_keys():
            results.setdefault(key[0], []).append(history.returned(key))
        return history.result(results, self._driver.data.num_rows(), finish.what)

    def _finished(self, result: Result) -> Any:
        """Return what the verb returns that has started the run; the user's model takes over what was trained."""
        return result if self._finish is None else self._finish(result)

    def __repr__(self) -> str:
        return masked(f"<Run {self.id}: {self._driver.history.outcome or self._driver.state}>")

    def _repr_html_(self) -> str:
        return html_of(self._driver, self._display)

    def _ipython_display_(self) -> None:
        show_live(self._driver, self._display, self.stop_soon)


class _StopForgotten:
    """Stops the run of a handle without references."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self) -> None:
        if not self._driver.over:
            with suppress(RuntimeError):  # the client's loop has ended, and the run with it
                self._driver.peer.loop.add_callback(self._driver.stop, "nobody holds it any more")
