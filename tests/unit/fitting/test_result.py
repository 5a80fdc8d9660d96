"""What a fit leaves: the user's model and callbacks as they were trained, and the account of the rows in the model."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from dask_train.data.account import BatchRange
from dask_train.data.ledger import Ledger, LedgerLine
from dask_train.driver.result import Attempt, Result
from dask_train.fitting.result import FitResult, ledger_of_training, trained
from dask_train.fitting.roles.variables import Variables
from dask_train.keras_models.serialization import model_to_parts
from dask_train.trainers.common.outcome import Outcome

OUTCOME = Outcome(
    header={},
    arrays=[],
    history={"loss": [0.5, 0.25], "val_loss": [0.75, float("nan")]},
    epoch=[2, 3],
    callbacks=[],
    steps=6,
    read=[],
    num_rows=10,
    warnings=[],
    num_steps=3,
    all_reduce_s=0.5,
    waiting_s=0.25,
    applied={},
    best_epoch=2,
)


def line(rank, epoch, read, trained, *, role="worker", dataset=0, repeated=0):
    return LedgerLine(
        role=role, rank=rank, dataset=dataset, turn=0, epoch=epoch, read=read, trained=trained, repeated=repeated
    )


def result_of(came, *lines):
    return Result(
        results={"worker": [came, None]},
        scores=[{"loss": 0.5}],
        ledger=Ledger.of_lines(lines, lambda _: 10),
        attempts=[],
        stop_reason="",
        run_id="fit-1",
    )


def network():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="net")
    model.compile("sgd", "mse")
    return model


def batches(first, done, *, epoch=0, batch_size=4):
    return [BatchRange(dataset=0, turn=0, epoch=epoch, batch_size=batch_size, first=first, taken=done, done=done)]


def test_the_user_s_model_has_the_weights_and_history_and_warns():
    mine, theirs = network(), network()
    header, arrays = model_to_parts(theirs)
    callbacks = [keras.callbacks.History(), keras.callbacks.EarlyStopping()]
    came = replace(OUTCOME, header=header, arrays=arrays, warnings=["of a kind"], callbacks=[b"", b""])
    came = replace(came, stop_training=True)
    with pytest.warns(UserWarning, match="of a kind"):
        found = trained(result_of(came), mine, callbacks, {"epochs": 4, "verbose": 0}, {}, Variables())
    for one, other in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert mine.stop_training, "a callback has stopped training, as in Keras' own fit"
    assert mine.history is callbacks[0]
    assert (mine.history.history, mine.history.epoch) == (OUTCOME.history, [2, 3])
    assert mine.history.params == {"epochs": 4, "verbose": 0, "steps": 3}
    assert mine.history.model is mine
    assert (callbacks[1].model, callbacks[1].params) == (mine, mine.history.params)
    assert (found.model, found.best_epoch, found.all_reduce_s, found.waiting_s) == (mine, 2, 0.5, 0.25)


def test_what_was_trained_in_place_stays_and_has_a_history_too():
    model = network()
    before = model.get_weights()
    trained(result_of(OUTCOME), model, [], {"epochs": 4}, {}, Variables())
    assert model.history.history == OUTCOME.history
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_a_run_that_was_ended_early_leaves_the_model_alone(tmp_path):
    model = network()
    model.history = "that of before"
    found = trained(result_of(None, line(0, 0, 4, 4)), model, [], {}, {}, Variables())
    assert (found.history, found.epoch, found.best_epoch, model.history) == ({}, [], None, "that of before")
    assert found.ledger.trained == 4
    assert [path.name for path in found._save(tmp_path)] == ["ledger.json"], "there is nothing else to keep"
    assert "none" in dict(found._values())["epochs"]


def test_the_ledger_is_of_rows_that_are_in_the_weights():
    """One of two workers was killed in a batch; the other was lost with its account."""
    outcome = replace(OUTCOME, applied={0: batches(0, 2), 1: batches(0, 2)})
    told = [line(0, 0, read=6, trained=4), line(0, 0, 5, 5, dataset=1), line(0, 0, 7, 7, role="scorer")]
    found = ledger_of_training(result_of(outcome, *told).ledger, outcome)
    assert [(each.rank, each.read, each.trained) for each in found.lines] == [(0, 6, 4), (1, 4, 4)]
    assert (found.trained, found.dropped) == (8, 2)
    nothing = ledger_of_training(result_of(outcome, *told).ledger, replace(outcome, applied={0: [], 1: batches(0, 2)}))
    assert [(each.rank, each.trained) for each in nothing.lines] == [(0, 0), (1, 4)], "none of its batches was applied"
    more = ledger_of_training(result_of(outcome, line(0, 0, 2, 2)).ledger, outcome)
    assert (more.lines[0].read, more.lines[0].trained) == (4, 4), "what was trained on was read"


def test_the_ledger_has_what_was_trained_on_before_the_model_was_resumed_by_other_workers():
    before = ("run-0", 3, {0: batches(0, 1), 1: batches(0, 1)})
    outcome = replace(OUTCOME, read=[before], applied={0: batches(1, 2)})
    found = ledger_of_training(result_of(outcome, line(0, 0, 6, 6)).ledger, outcome)
    assert [(each.rank, each.trained) for each in found.lines] == [(0, 6), (0, 1), (1, 1)], "of three, then of one"


def fit_result(**more):
    known = {"scores": [], "ledger": Ledger.of_lines([], lambda _: 0), "attempts": [], "stop_reason": "", "run_id": "r"}
    model = SimpleNamespace(name="net")
    own = {"model": model, "history": OUTCOME.history, "epoch": [2, 3], "all_reduce_s": 0.0, "waiting_s": 0.0}
    return FitResult(**{**known, **own, **more})


def test_the_last_values_are_shown_but_for_those_of_no_validation():
    history = {"loss": [0.5, 0.25], "val_loss": [0.75, float("nan")], "auc": [float("nan")], "lr": ["x"], "none": []}
    found = fit_result(history=history, best_epoch=2)._values()
    assert [name for name, _ in found] == ["model", "epochs", "best epoch", "loss", "auc"]
    assert dict(found)["epochs"] == "4"
    assert dict(found)["best epoch"] == "3"
    assert dict(fit_result(model=object())._values())["model"] == "object", "by its class, where it has no name"


def test_what_is_kept_of_a_run_is_its_ledger_its_page_and_the_model(tmp_path):
    attempts = [Attempt(number=0, started=1.0, ended=2.0, places={"worker/0": "tcp://a:1"})]
    files = list(fit_result(model=network(), attempts=attempts)._save(tmp_path))
    assert [path.name for path in files] == ["ledger.json", "model.keras", "report.html"]
    assert json.loads(files[0].read_text()) == {"read": 0, "trained": 0, "repeated": 0, "dropped": 0, "lines": []}
    assert "net, 2 epochs" in files[2].read_text()


def test_weights_that_are_no_numbers_are_told_of():
    model = network()
    model.layers[0].kernel.assign([[1.0], [np.nan]])
    header, arrays = model_to_parts(model)
    came = result_of(replace(OUTCOME, header=header, arrays=arrays))
    with pytest.warns(UserWarning, match=r"Weights are NaN or infinite: \S*kernel"):
        result = trained(came, network(), [], {}, None, Variables())
    assert [notice[:27] for notice in result.notices] == ["Weights are NaN or infinite"]
