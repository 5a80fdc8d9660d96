"""The error that a run ends with."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train import errors
from dask_train.driver.history import History
from dask_train.driver.run_errors import TAIL_LINES, error_of
from dask_train.run.commands import Finish, Verdict
from dask_train.run.messages import Failed

BAD = [verdict for verdict in Verdict if verdict is not Verdict.OK]


def made(verdict: Verdict = Verdict.ROLE_FAILED, *, output: Any = None, refuses: Any = None, **history: Any) -> Any:
    kept = History(SimpleNamespace(id="run-1"))
    vars(kept).update(history)
    finish = Finish(verdict=verdict, what="What.", cause="Cause.", change="Change.", role="worker", rank=1)
    return error_of("run-1", finish, kept, output or {}, refuses)


def raised(error: BaseException | None, traceback: str = "") -> dict[Any, Any]:
    pickled = b"" if error is None else pickle.dumps(error)
    return {("worker", 1): Failed(error="no.", exception=pickled, traceback=traceback)}


@pytest.mark.parametrize("verdict", BAD)
def test_each_verdict_is_an_error_of_its_own(verdict):
    error = made(verdict)
    assert type(error).__name__ == verdict
    assert str(error) == "What. Cause. Change."
    assert error.__notes__ == ["This was run run-1; dask train logs run-1 shows more while its scheduler lives."]
    assert error.__cause__ is None


@pytest.mark.parametrize("verdict", BAD)
def test_the_roles_own_exception_is_the_cause_where_it_is_to_blame(verdict):
    error = made(verdict, raised=raised(ValueError("no"), "Traceback:\n  mine.py\n"))
    if verdict in (Verdict.ROLE_FAILED, Verdict.LAUNCH):
        assert isinstance(error.__cause__, ValueError)
        assert error.__notes__[0] == "Traceback of worker 1:\nTraceback:\n  mine.py"
    else:
        assert error.__cause__ is None


@pytest.mark.parametrize("pickled", [b"", b"no pickle", pickle.dumps("no exception"), b"cno_such_module\nError\n."])
def test_an_exception_that_cannot_be_made_here(pickled):
    error = made(raised={("worker", 1): Failed(error="no.", exception=pickled, traceback="Traceback: x")})
    assert error.__cause__ is None
    assert "Traceback: x" in error.__notes__[0], "its traceback says what it was"


def test_exceptions_of_other_roles_are_not_its_cause():
    error = made(raised={("worker", 0): Failed(error="no.", exception=pickle.dumps(ValueError()), traceback="x")})
    assert (error.__cause__, len(error.__notes__)) == (None, 1)


def test_an_end_that_no_role_is_to_blame_for():
    cause = OSError("no route")
    assert made(Verdict.DRIVER, driver_error=cause).__cause__ is cause


def test_the_end_of_its_output():
    output = {("worker", 1): "".join(f"line {n}\n" for n in range(100)), ("worker", 0): "another's"}
    note = made(Verdict.ROLE_LOST, output=output).__notes__[0]
    lines = note.splitlines()
    assert lines[0] == "The end of its output:"
    assert lines[1:] == [f"[worker 1] line {n}" for n in range(100 - TAIL_LINES, 100)]


def test_a_stall_shows_the_stacks():
    assert made(Verdict.STALLED, diagnosis="the picture").__notes__[0] == "the picture"
    assert len(made(Verdict.ROLE_LOST, diagnosis="an old picture").__notes__) == 1


def test_what_a_role_refuses_is_raised_as_it_is_with_the_roles_traceback():
    def refuses(error):
        return isinstance(error, ValueError)

    error = made(raised=raised(ValueError("no"), "Traceback:\n  mine.py\n"), refuses=refuses)
    assert (type(error), str(error)) == (ValueError, "no")
    assert error.__notes__[0] == "Traceback of worker 1:\nTraceback:\n  mine.py"
    assert "This was run run-1" in error.__notes__[1]
    assert type(made(raised=raised(OSError("no")), refuses=refuses)) is errors.RoleFailedError
    assert type(made(Verdict.LAUNCH, raised=raised(ValueError("no")), refuses=refuses)) is errors.LaunchError


def test_a_rank_that_lost_the_one_that_refused_may_have_been_heard_first():
    echo = {("worker", 1): Failed(error="", exception=pickle.dumps(OSError("peer closed")))}
    first = {("worker", 0): Failed(error="", exception=pickle.dumps(ValueError("no")), traceback="x")}
    error = made(raised=echo | first, refuses=lambda each: isinstance(each, ValueError))
    assert (str(error), error.__notes__[0]) == ("no", "Traceback of worker 0:\nx")
