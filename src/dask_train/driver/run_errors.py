"""The error that a run ends with: what happened, the role's own exception, its output's tail, its stacks."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from dask_train import errors
from dask_train.driver.history import History
from dask_train.run.commands import Finish, Key, Verdict
from dask_train.run.messages import Failed
from dask_train.run.state import name_of

# How much of a role's output goes into an error; the rest is in the log.
TAIL_LINES = 20


# Distinguishes errors for wrong input, which are the user's as they are, from what went wrong in a role.
Refuses = Callable[[BaseException], bool]


def error_of(
    run_id: str, finish: Finish, history: History, output: dict[Key, str], refuses: Refuses | None = None
) -> Exception:
    """Return the exception for a verdict that is not OK, with its cause; or what a role has refused, as it is."""
    kind: type[errors.DaskTrainError] = getattr(errors, str(finish.verdict))
    error = kind(finish.what, finish.cause, finish.change)
    key = (finish.role, finish.rank)
    last_line = f"This was run {run_id}; dask train logs {run_id} shows more while its scheduler lives."
    raised = history.raised.get(key)
    if refuses is not None and finish.verdict is Verdict.ROLE_FAILED:
        for refusing, each in {key: raised, **history.raised}.items():
            if each is None or not isinstance(exception := _exception(each), Exception):
                continue
            if refuses(exception):  # also where ranks that have lost this one were heard first
                exception.add_note(_traceback(refusing, each))
                exception.add_note(last_line)
                return exception
    if raised is not None and finish.verdict in (Verdict.ROLE_FAILED, Verdict.LAUNCH):
        error.__cause__ = _exception(raised)
        if raised.traceback:
            error.add_note(_traceback(key, raised))
    elif history.driver_error is not None:
        error.__cause__ = history.driver_error
    tail = output.get(key, "").rstrip().splitlines()[-TAIL_LINES:]
    if tail:
        lines = "\n".join(f"[{name_of(key)}] {line}" for line in tail)
        error.add_note(f"The end of its output:\n{lines}")
    if finish.verdict is Verdict.STALLED and history.diagnosis:
        error.add_note(history.diagnosis)
    error.add_note(last_line)
    return error


def _traceback(key: Key, raised: Failed) -> str:
    return f"Traceback of {name_of(key)}:\n{raised.traceback.rstrip()}"


def _exception(raised: Failed) -> BaseException | None:
    if not raised.exception:
        return None
    try:
        exception = pickle.loads(raised.exception)  # noqa: S301 - from our own role process
    except Exception:  # its class is not here; the traceback says what it was
        return None
    return exception if isinstance(exception, BaseException) else None
