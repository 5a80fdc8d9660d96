"""``{"worker": 0}``: one worker in the client's own process, for debuggers; what of a run there can be."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from weakref import finalize

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.cluster.clients import client_or_none
from dask_train.cluster.peer import Peer
from dask_train.collections.source import Source
from dask_train.config import Deadlines, logging_timeout_s
from dask_train.data.account import Account, read_account
from dask_train.driver.history import INTERRUPTED, History
from dask_train.driver.job import Job
from dask_train.driver.notebook import runs_before, this_cell
from dask_train.driver.result import Result, leave_result
from dask_train.driver.settings import RunInputs, RunSettings, RunSources
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.registry import find_framework
from dask_train.logging.log import INTERRUPTED_S, Log
from dask_train.process.messages import Accounted
from dask_train.report.progress import RunDisplay, check_progress
from dask_train.role.equipment import Equipment
from dask_train.role.meeting import Meeting
from dask_train.role.session import Session
from dask_train.roles import AddressBook
from dask_train.run.commands import Finish, Verdict
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.transitions import begin
from dask_train.shared_data.in_process import InProcessData, mapped_here
from dask_train.training.in_process_link import ROLE, InProcessLink
from dask_train.training.launch import check_roles, functions_of, named_of, of_job, plan_of

_COUNTS = {ROLE.role: 1}


def is_zero(count: Any) -> bool:
    """Return whether that many workers mean one in this process."""
    return isinstance(count, int) and not isinstance(count, bool) and count == 0


def is_in_process(roles: Any) -> bool:
    """Return whether the worker of these roles is to be in this process."""
    return isinstance(roles, Mapping) and is_zero(roles.get(ROLE.role))


def run_in_process(
    function: Any,
    roles: Mapping[str, int],
    inputs: RunInputs,
    run: RunSettings,
    *,
    framework: Any = None,
    finish: Callable[[Result], Any] | None = None,
    display: Callable[..., Any] = RunDisplay,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """Do as :func:`~dask_train.training.launch.launch`, of one worker, which this process is while it lasts.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid, or can't be here; nothing has been started.
    BaseException
        Whatever the function raises, as it is.
    """
    adapter = find_framework(framework)
    functions = functions_of(function)
    _check_alone(roles, run)
    run.needs(list(_COUNTS))
    sources = inputs.opened(_COUNTS)
    check_progress(run.progress, waits=True)
    log_s = logging_timeout_s()
    peer = _peer(run.client)
    check_roles(_COUNTS, functions, sources.by_role, adapter)
    job = Job(
        plan=plan_of(_COUNTS, sources, adapter, RecoveryPolicy(), set()),  # nothing is lost that could be replaced
        functions={},
        names={role: named_of(functions[role]) for role in _COUNTS},
        framework=adapter,
        run=run,
        **of_job(run, functions, _COUNTS),
        params={**roles, "framework": adapter.name, **(params or {})},
    )
    for old in runs_before(this_cell()):
        old.stop("its cell was run again")
    in_process = _InProcessRun(job, peer, sources)
    if run.log:
        in_process.log_to(Log(run.log, job.started(), log_s))
    with display(run.progress, redraws=False) as shown:
        return in_process.outcome(functions[ROLE.role], shown.update if shown.shown else None, finish)


def _check_alone(roles: Mapping[str, int], run: RunSettings) -> None:
    others = [role for role in roles if role != ROLE.role]
    if others:
        _refuse(f"role {others[0]!r} would need a process of its own", f"leave {others[0]!r} out")
    if run.window is not None:
        _refuse(f"streaming={run.streaming!r} needs a run on the cluster, which computes ahead of it", "leave it out")
    if not run.wait:
        _refuse("wait=False would return before it is over", "leave it out")
    if run.gpus in (0, 1):
        _refuse(
            f"gpus={run.gpus!r} is about processes of the cluster; here the framework's own device is used",
            "leave it out",
        )


def _refuse(why: str, change: str) -> NoReturn:
    raise ValueError(
        f"No worker but this process was asked for (worker=0, or workers=0), and {why}. Pass 1 or more, or {change}."
    )


def _peer(client: Any) -> Peer | None:
    dask_client = client_or_none(client)
    if dask_client is None:
        return None
    peer = Peer(dask_client)
    if peer.asynchronous:
        _refuse("an asynchronous client could do nothing meanwhile", "pass a client that is not")
    return peer


class _InProcessRun:
    """A run whose only role is a function of this process."""

    def __init__(self, job: Job, peer: Peer | None, sources: RunSources) -> None:
        self._job, self._peer, self._own = job, peer, sources.by_role.get(ROLE.role)
        self._history = History(job)
        self._data = InProcessData(peer, sources.named)
        self._link = InProcessLink(job, self._history, self._data)
        self._num_rows = 0

    def log_to(self, log: Log) -> None:
        """Send scores, and how the run ends, to a log as well."""
        self._history.log_to(log)

    def outcome(
        self,
        function: Callable[[Session], Any],
        shown: Callable[[dict[str, Any]], None] | None,
        finish: Callable[[Result], Any] | None,
    ) -> Any:
        """Return what the verb returns."""

        def ended(value: Any) -> Any:
            if shown is not None:
                self._link.show(shown)
            result = self._result(value)
            return result if finish is None else finish(result)

        state, _ = begin(self._job.plan, self._history.now())
        self._history.begin(state)
        self._history.attempts[-1].places[f"{ROLE.role}/{ROLE.rank}"] = "this process"
        if shown is not None:
            self._link.show(shown)
        try:
            value = self._run(function)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._history.finished(Finish(verdict=Verdict.ROLE_FAILED, what=message))
            self._history.wait_for_log()
            raise
        except BaseException as error:  # a Ctrl-C, above all
            self._link.ask_to_stop(INTERRUPTED)
            with suppress(Exception):
                leave_result(error, ended(None))
                self._history.wait_for_log(INTERRUPTED_S)
            raise
        outcome = ended(value)
        try:
            self._history.deliver(outcome)
        except BaseException as error:  # a Ctrl-C, while places of the log are waited for
            leave_result(error, outcome)
            raise
        return outcome

    def _run(self, function: Callable[[Session], Any]) -> Any:
        job, adapter = self._job, self._job.framework
        deadlines = Deadlines.from_dask_config()
        me = RoleInfo(role=ROLE.role, rank=ROLE.rank, counts=_COUNTS, host="127.0.0.1", num_threads=os.cpu_count() or 1)
        what = f"data[{ROLE.role!r}]"
        own = None if self._own is None else mapped_here(self._peer, what, self._own)
        self._num_rows = 0 if own is None else own[0].num_rows
        if isinstance(self._own, Source) and self._own.num_listed is not None:
            self._history.files_skipped({what: self._own.num_listed - self._num_rows})
        with ExitStack() as stack:
            checkpoints = None
            if job.checkpoint is not None:
                checkpoints = stack.enter_context(_claimed(CheckpointFolder(job.checkpoint)))
            sessions: list[Session] = []
            stack.callback(_end_passes, sessions)  # after a batch in hand is known to be lost
            meeting = Meeting(self._link, me, deadlines.rendezvous_s, deadlines.progress_s)
            stack.callback(meeting.close)
            account = stack.enter_context(self._accounted())
            equipment = Equipment(
                attempt=ROLE.attempt,
                framework=adapter,
                peers=AddressBook(),
                extras=stack.enter_context(adapter.alone(me)),
                data=own,
                account=account,
                checkpoint=checkpoints,
                scratch=Path(stack.enter_context(_scratch(job.id))),
                meeting=meeting,
            )
            session = Session(self._link, me, equipment)
            sessions.append(session)
            value = function(session)
            for remark in () if meeting.has_met else adapter.remarks(me):
                session.notice(remark)
            return value

    @contextmanager
    def _accounted(self) -> Iterator[Account]:
        descriptor = os.memfd_create("dask-train-account", os.MFD_CLOEXEC)
        account = Account(descriptor)
        finalize(account, os.close, descriptor)  # the user may keep the session, and still use it
        try:
            yield account
            account.settle()
        except BaseException:
            account.seal()
            raise
        finally:
            self._history.record(ROLE, Accounted(account=read_account(descriptor)))

    def _result(self, value: Any) -> Result:
        history, reason = self._history, self._link.stop_reason
        history.finished(Finish(verdict=Verdict.OK, what=reason), self._job.run.stop)
        history.files_skipped(self._data.num_skipped())
        rows = {("", number): count for number, count in self._data.num_rows().items()}
        rows |= {} if self._own is None else {(ROLE.role, 0): self._num_rows}
        return history.result({ROLE.role: [value]}, rows, reason)


@contextmanager
def _claimed(folder: CheckpointFolder) -> Iterator[CheckpointFolder]:
    folder.check()
    folder.claim()
    try:
        yield folder
    finally:
        folder.release()


@contextmanager
def _scratch(run: str) -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix=f"{run}-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_passes(sessions: list[Session]) -> None:
    """End the threads that prepare batches which will not be used."""
    for each in [each for session in sessions for each in session._context.open_passes]:
        with suppress(ValueError):  # another thread of the user's takes a batch just now
            each.close()
