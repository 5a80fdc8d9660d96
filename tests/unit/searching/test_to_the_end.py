"""How a search ends: with a result, with all trials failed, or cut short with what was found so far."""

from __future__ import annotations

import contextlib
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")

from dask_train.errors import PlacementError, RoleFailedError  # noqa: E402 - where there is Optuna
from dask_train.searching.result import SearchResult  # noqa: E402
from dask_train.searching.to_the_end import trained  # noqa: E402


class Trials:
    """Trials that have ended so."""

    def __init__(self, *states: str, log: Any = None) -> None:
        self.study = optuna.create_study()
        self.ended = [
            SimpleNamespace(
                number=number, state=state, error=f"error {number}", traceback="the trace\n" * (number == 0)
            )
            for number, state in enumerate(states)
        ]
        self.warnings: dict[str, int] = {}
        self.best = self.best_ended = None
        self.log, self.cut, self.is_closed = log, list[str](), False
        self.schema = None

    def cut_short(self, why: str) -> None:
        assert not self.is_closed
        self.cut.append(why)

    def close(self) -> None:
        self.is_closed = True


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
    trials, display = Trials("COMPLETE", "FAIL", log=Log()), Display()
    result = trained(slots(), trials, display)
    assert isinstance(result, SearchResult)
    assert result.study is trials.study
    assert display.shown == [(trials.ended, ["in hand"], None)]
    assert display.left
    assert trials.is_closed
    assert trials.log.ends == [(None, None)]
    assert trials.cut == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "It was interrupted."),
        (PlacementError("There is no room."), "The search ended: There is no room."),
    ],
)
def test_one_that_is_cut_short_leaves_what_was_found_with_the_error(error, why):
    trials, display = Trials("COMPLETE", log=Log()), Display()
    with pytest.raises(type(error)) as raised:
        trained(slots(error), trials, display)
    assert raised.value.result.study is trials.study
    assert trials.cut == [why], "trials in hand are told how they ended"
    assert trials.is_closed
    assert display.left
    assert trials.log.ends == [(error, None)]


@pytest.mark.parametrize("num", [1, 3])
def test_where_all_have_failed_the_first_says_why(num):
    trials = Trials(*["FAIL"] * num)
    with pytest.raises(RoleFailedError, match=rf"All {num} trials have failed\. Trial 0: error 0") as raised:
        trained(slots(), trials, Display())
    assert raised.value.__notes__ == ["Traceback of trial 0:\nthe trace"]
    assert trials.is_closed


def test_where_none_was_begun_none_has_failed():
    assert trained(slots(), Trials(), Display()).trials == []


def test_what_keras_would_have_warned_of_is_said_with_its_trial():
    trials = Trials("COMPLETE")
    trials.warnings = {"the batches are odd": 3}
    with pytest.warns(UserWarning, match="^Trial 3: the batches are odd$"):
        trained(slots(), trials, Display())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trials.warnings = {}
        trained(slots(), trials, Display())
