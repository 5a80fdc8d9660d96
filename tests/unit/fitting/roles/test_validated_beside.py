"""Validation by a scorer as the first worker sees it: what it gives, what it finds, and what it takes over."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_train.fitting.roles.validation import ValidationBeside


class Spool:
    """Weights that were put, and scores that a scorer has found."""

    def __init__(self) -> None:
        self.scores: dict[int, dict[str, float]] = {}
        self.was_put: list[tuple[int, Any]] = []
        self.waited: list[float] = []
        self.in_time, self.is_closed = True, False

    def put(self, epoch: int, model: Any) -> None:
        self.was_put.append((epoch, model))

    def aligned(self, epochs: Any) -> dict[str, list[float]]:
        return {"of": list(epochs)}

    def wait_for_last(self, timeout_s: float, *, moved: Any, should_stop: Any) -> bool:
        self.waited.append(timeout_s)
        moved()
        return self.in_time and not should_stop()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def beside():
    """Validation at the end of every second epoch; ``stops`` is whether the run is to end."""
    it = SimpleNamespace(spool=Spool(), notices=[], doing=[], stops=False)
    it.model = SimpleNamespace(_should_eval=lambda epoch, frequency: (epoch + 1) % frequency == 0)
    session = SimpleNamespace(
        notice=it.notices.append, should_stop=lambda: it.stops, _link=SimpleNamespace(moved=it.doing.append)
    )
    task = SimpleNamespace(validation_freq=2, collective_timeout_s=30.0)
    it.validation = ValidationBeside(task, session, it.model, it.spool)
    return it


def test_weights_are_given_at_the_ends_of_epochs_that_are_to_be_validated_once(beside):
    assert [beside.validation.epoch_ends(epoch) for epoch in range(4)] == [False, True, False, True]
    assert beside.spool.was_put == [(1, beside.model), (3, beside.model)]
    beside.spool.scores[5] = {"val_loss": 0.5}
    assert not beside.validation.epoch_ends(5), "a checkpoint has it"
    assert beside.validation.found([0, 1]) == {"of": [0, 1]}


@pytest.mark.parametrize(
    ("values", "of"),
    [
        ([0.3, 0.1], {1: 0.3, 3: 0.1}),  # as Keras writes it: of those that were validated
        ([math.nan, 0.3, math.nan, 0.1], {1: 0.3, 3: 0.1}),  # as a scorer's: of all
        ([math.nan, 0.3, math.nan, math.nan], {1: 0.3}),
    ],
)
def test_a_checkpoints_history_is_taken_over_without_its_gaps(beside, values, of):
    history = {"loss": [4, 3, 2, 1], "val_loss": values}
    beside.validation.take_known(history, range(4))
    assert history == {"loss": [4, 3, 2, 1]}, "Keras goes on with the rest"
    assert beside.spool.scores == {epoch: {"val_loss": value} for epoch, value in of.items()}
    assert beside.notices == []


def test_scores_of_several_classes_have_no_gaps(beside):
    each = np.array([0.5, math.nan])
    beside.validation.take_known({"val_f1": [math.nan, each, math.nan, each]}, range(4))
    assert beside.spool.scores == {1: {"val_f1": each}, 3: {"val_f1": each}}


def test_values_of_which_nobody_knows_the_epochs_are_not_guessed_at(beside):
    history = {"loss": [4, 3, 2, 1], "val_loss": [0.3, 0.2, 0.1], "val_accuracy": [0.5, 0.6]}
    beside.validation.take_known(history, range(4))
    assert beside.spool.scores == {1: {"val_accuracy": 0.5}, 3: {"val_accuracy": 0.6}}
    (notice,) = beside.notices
    assert "3 values of val_loss for 4 epochs, and does not tell of which" in notice


def test_the_last_scores_are_waited_for_less_than_a_stall_takes(beside):
    beside.validation.finish()
    assert beside.spool.waited == [10.0]
    assert set(beside.doing) == {"waiting for the scorer"}
    assert beside.notices == []


@pytest.mark.parametrize(("stops", "told"), [(False, 1), (True, 0)])
def test_scores_that_do_not_come_are_told_of_unless_the_run_ends(beside, stops, told):
    beside.spool.in_time, beside.stops = False, stops
    beside.validation.finish()
    assert len(beside.notices) == told
    assert all("it took no step for 10 s. Its scores are NaN" in notice for notice in beside.notices)


def test_it_closes_what_weights_lie_on(beside):
    beside.validation.close()
    assert beside.spool.is_closed
