"""How a search ends: with a result, with all study failed, or cut short with what was found so far."""

from __future__ import annotations

import contextlib
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")

from dask_train.errors import CheckpointError, PlacementError, RoleFailedError  # noqa: E402 - where there is Optuna
from dask_train.searching.optuna_study import OptunaStudy  # noqa: E402
from dask_train.searching.pool import trained  # noqa: E402
from dask_train.searching.result import SearchResult  # noqa: E402
from dask_train.searching.study import FinishedTrial  # noqa: E402


class Study(OptunaStudy):
    """One whose study have ended so."""

    def __init__(self, *states: str, log: Any = None) -> None:
        study = optuna.create_study()
        super().__init__(study, lambda _: None, metric="score", most=3, timeout_s=None, log=log)  # type: ignore[arg-type,return-value]
        self.ended = [
            FinishedTrial(
                number=number,
                state=state,
                params={},
                value=None,
                seconds=1.0,
                error=f"error {number}",
                traceback="the trace\n" * (number == 0),
            )
            for number, state in enumerate(states)
        ]
        self.cut, self.is_closed = list[str](), False

    def cut_short(self, why: str) -> None:
        assert not self.is_closed
        self.cut.append(why)
        super().cut_short(why)

    def close(self) -> None:
        self.is_closed = True
        super().close()


class Display(contextlib.AbstractContextManager):
    """What is shown."""

    def __init__(self) -> None:
        self.shown, self.left = list[tuple[Any, ...]](), False

    def __exit__(self, *_: object) -> None:
        self.left = True

    def update(self, *shown: Any) -> None:
        self.shown.append(shown)


class Log:
    def __init__(self) -> None:
        self.ends: list[tuple[Any, Any]] = []

    def end(self, failure: Any, best: Any) -> None:
        self.ends.append((failure, best))


def slots(error: BaseException | None = None) -> Any:
    def train(show: Any) -> None:
        show([SimpleNamespace(handed="in hand"), SimpleNamespace(handed=None)])
        if error is not None:
            raise error

    return SimpleNamespace(train=train)


def test_it_ends_with_what_was_found():
    study, display = Study("COMPLETE", "FAIL", log=Log()), Display()
    result = trained(slots(), study, display, SearchResult)
    assert isinstance(result, SearchResult)
    assert result.study is study.study
    assert display.shown == [(study.ended, ["in hand"], None)]
    assert display.left
    assert study.is_closed
    assert study.log.ends == [(None, None)]
    assert study.cut == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "It was interrupted."),
        (PlacementError("There is no room."), "The search ended: There is no room."),
    ],
)
def test_one_that_is_cut_short_leaves_what_was_found_with_the_error(error, why):
    study, display = Study("COMPLETE", log=Log()), Display()
    with pytest.raises(type(error)) as raised:
        trained(slots(error), study, display, SearchResult)
    assert raised.value.result.study is study.study
    assert study.cut == [why], "study in hand are told how they ended"
    assert study.is_closed
    assert display.left
    assert study.log.ends == [(error, None)]


@pytest.mark.parametrize("num", [1, 3])
def test_where_all_have_failed_the_first_says_why(num):
    study = Study(*["FAIL"] * num, log=Log())
    with pytest.raises(RoleFailedError, match=rf"All {num} trials have failed\. Trial 0: error 0") as raised:
        trained(slots(), study, Display(), SearchResult)
    assert raised.value.__notes__ == ["Traceback of trial 0:\nthe trace"]
    assert study.log.ends == [(raised.value, None)], "a search without any result is logged as failed"
    assert study.is_closed


def test_where_none_was_begun_none_has_failed():
    assert trained(slots(), Study(), Display(), SearchResult).trials == []


def test_what_keras_would_have_warned_of_is_said_with_its_trial():
    study = Study("COMPLETE")
    study.warnings = {"the batches are odd": 3}
    with pytest.warns(UserWarning, match="^Trial 3: the batches are odd$"):
        trained(slots(), study, Display(), SearchResult)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(slots(), Study("COMPLETE"), Display(), SearchResult)


def test_what_can_not_be_kept_in_the_end_ends_it_with_its_result():
    class Full(Study):
        def end(self) -> None:
            raise CheckpointError("The disk is full.")

    study = Full("COMPLETE", log=Log())
    with pytest.raises(CheckpointError, match="The disk is full") as raised:
        trained(slots(), study, Display(), SearchResult)
    assert raised.value.result.study is study.study
    assert study.log.ends == [(raised.value, None)]


@pytest.mark.parametrize("error", [None, PlacementError("There is no room.")])
def test_ctrl_c_while_the_log_is_waited_for_leaves_what_was_found(error):
    class Slow(Log):
        def end(self, failure: Any, best: Any) -> None:
            raise KeyboardInterrupt

    study = Study("COMPLETE", log=Slow())
    with pytest.raises(KeyboardInterrupt) as raised:
        trained(slots(error), study, Display(), SearchResult)
    assert raised.value.result.study is study.study
