"""Searches on real clusters: what is found, what fails, what is lost, and that nothing is left."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import optuna
import pytest
from keras import layers

import dask_train as dt

pytestmark = pytest.mark.slow

_found = importlib.util.spec_from_file_location("kept_search", Path(__file__).with_name("kept_search.py"))
assert _found is not None
assert _found.loader is not None
kept_search = importlib.util.module_from_spec(_found)
_found.loader.exec_module(kept_search)

ROWS = 600
LOSS = keras.losses.SparseCategoricalCrossentropy


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return x, (x.sum(1) > 0).astype("i8")


def made(rate=0.1):
    model = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
    model.compile(keras.optimizers.Adam(rate), LOSS(from_logits=True), metrics=["accuracy"])
    return model


def one_of_each(trial):
    """A model that learns, and others: pruned, impossible to build, without a number for a loss, with an error."""
    kind = trial.suggest_categorical("kind", ["learns", "pruned", "unbuilt", "nan", "raises"])
    if kind == "unbuilt":
        raise RuntimeError("there is no such model")
    model = made(float("nan") if kind == "nan" else 0.05)
    if kind == "raises":
        return model, {"callbacks": [Raising()]}
    # One that is pruned would go on for hours.
    return model, {"epochs": 1_000_000 if kind == "pruned" else 4, "batch_size": 50}


class Raising(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise OSError("the callback is out of ideas")


class PrunesOne(optuna.pruners.BasePruner):
    def prune(self, study, trial):
        return trial.params["kind"] == "pruned" and trial.last_step >= 1


def states(found):
    return {trial.params.get("kind", trial.number): trial for trial in found.trials}


def test_each_trial_ends_in_its_own_way_and_the_best_model_scores_what_it_says(client):
    held_out = rows(1)
    kinds = ["learns", "pruned", "unbuilt", "nan", "raises"]
    found = dt.search(
        one_of_each,
        *rows(),
        validation_data=held_out,
        metric="val_loss",
        direction="minimize",
        trials=50,  # the grid ends before
        concurrency=2,
        sampler=optuna.samplers.GridSampler({"kind": kinds}, seed=0),
        pruner=PrunesOne(),
        client=client,
    )
    trials = states(found)
    assert {kind: trial.state.name for kind, trial in trials.items()} == {
        "learns": "COMPLETE",
        "pruned": "PRUNED",
        "unbuilt": "FAIL",
        "nan": "FAIL",
        "raises": "FAIL",
    }
    assert len(found.trials) == 5
    assert trials["unbuilt"].user_attrs["error"] == "RuntimeError: there is no such model"
    assert trials["nan"].user_attrs["error"].startswith("FloatingPointError: The loss is nan in epoch 1")
    assert trials["raises"].user_attrs["error"] == "OSError: the callback is out of ideas"
    told = trials["learns"].intermediate_values
    assert sorted(told) == [0, 1, 2, 3]
    assert found.best_value == min(told.values())
    assert told[trials["learns"].user_attrs["epoch"]] == found.best_value
    loss, _ = found.best_model.evaluate(*held_out, verbose=0)
    assert loss == pytest.approx(found.best_value, rel=1e-5)
    assert found.best_params == {"kind": "learns"}
    frame = found.trials_dataframe()
    assert frame.user_attrs_error.notna().sum() == 3


def test_a_study_in_a_file_goes_on_and_one_without_a_trial_that_works_says_why(client, tmp_path):
    def broken(trial):
        trial.suggest_float("rate", 0, 1)
        raise RuntimeError("there is no such model")

    def works(trial):
        return made(trial.suggest_float("rate", 0, 1))

    study = {"storage": tmp_path / "study.db", "study_name": "mine", "client": client, "validation_split": 0.2}
    with pytest.raises(dt.RoleFailedError, match=r"All 3 trials have failed. Trial 0: RuntimeError: there is no such"):
        dt.search(broken, *rows(), trials=3, **study)
    found = dt.search(works, *rows(), trials=1, epochs=1, **study)
    assert [trial.state.name for trial in found.trials] == ["FAIL"] * 3 + ["COMPLETE"]
    assert found.best_trial.number == 3
    again = dt.search(broken_after(found.best_value), *rows(), trials=1, epochs=1, **study)
    assert again.best_trial.number == 3
    with pytest.raises(dt.DaskTrainError, match="The model of the best trial, 3, is not here"):
        _ = again.best_model
    with pytest.raises(ValueError, match="Study 'mine' is there to maximize"):
        dt.search(works, *rows(), metric="val_loss", direction="minimize", **study)


def test_a_study_of_the_users_own_goes_on_and_a_metric_that_nothing_computes_ends_it_at_once(client):
    def build(trial):
        return made(trial.suggest_float("rate", 0.01, 0.1))

    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(1))
    given = {"study": study, "validation_split": 0.2, "epochs": 1, "client": client}
    with pytest.raises(ValueError, match=r"no score 'val_acc' at the end of an epoch; there are .*val_loss"):
        dt.search(build, *rows(), metric="val_acc", trials=20, **given)
    assert len(study.trials) < 20
    num_before = len(study.trials)
    found = dt.search(build, *rows(), metric="val_loss", trials=2, **given)
    assert found.study is study
    assert [trial.state.name for trial in study.trials[num_before:]] == ["COMPLETE"] * 2
    assert found.best_value == min(trial.value for trial in study.trials[num_before:])


def broken_after(_):
    def pruned(trial):
        trial.suggest_float("rate", 0, 1)
        raise optuna.TrialPruned

    return pruned


def test_a_lost_dask_worker_costs_a_trial_that_is_begun_again(client):
    victims = []

    def build(trial):
        trial.suggest_int("size", 1, 1000)
        if trial.number == 2:  # the first two are in hand
            address, pid = next(iter(client.run(os.getpid).items()))
            victims.append(address)
            os.kill(pid, signal.SIGKILL)
        return made()

    found = dt.search(
        build, *rows(), validation_split=0.2, trials=4, epochs=30, batch_size=10, concurrency=2, client=client
    )
    lost = [trial for trial in found.trials if trial.state.name == "FAIL"]
    assert victims
    assert lost
    assert all(f"the Dask worker {victims[0]} left the cluster" in trial.user_attrs["error"] for trial in lost)
    again = {trial.user_attrs["retry_of"]: trial for trial in found.trials if "retry_of" in trial.user_attrs}
    assert set(again) == {trial.number for trial in lost}
    assert all(again[trial.number].params == trial.params for trial in lost)
    assert sum(trial.state.name == "COMPLETE" for trial in found.trials) == 4


def test_ctrl_c_keeps_what_was_found(client):
    main = threading.main_thread().ident

    def build(trial):
        if trial.number == 2:
            threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
        return made(), {"epochs": 2 if trial.number < 2 else 1_000_000}

    with pytest.raises(KeyboardInterrupt) as interrupt:
        dt.search(build, *rows(), validation_split=0.2, trials=9, concurrency=1, client=client)
    found = interrupt.value.result
    assert [trial.state.name for trial in found.trials] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert found.trials[2].user_attrs["error"] == "It was interrupted."
    assert found.best_model.count_params() == made().count_params()


def test_several_workers_train_one_model_where_they_fit(client):
    data = {"validation_data": rows(1), "client": client}
    with pytest.raises(dt.PlacementError, match="needs room for 5, and the Dask workers that may be used hold 4"):
        dt.search(lambda _: made(), *rows(), workers_per_trial=5, **data)
    with pytest.raises(dt.PlacementError, match="hold 0, with 4 threads in all"):
        dt.search(lambda _: made(), *rows(), resources={"GPU": 1}, **data)
    x, y = dt.persist(*rows(), client=client)

    def build(trial):
        if trial.number == 1:  # NaN in all workers: these end, and others take their place
            return made(float("nan"))
        return made(), {"epochs": 1_000_000 if trial.number == 3 else 2}

    class PrunesThird(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number == 3

    found = dt.search(build, x, y, workers_per_trial=2, concurrency=1, trials=5, epochs=2, pruner=PrunesThird(), **data)
    assert [trial.state.name for trial in found.trials] == ["COMPLETE", "FAIL", "COMPLETE", "PRUNED", "COMPLETE"]
    assert "The loss is nan in epoch 1" in found.trials[1].user_attrs["error"]
    _, accuracy = found.best_model.evaluate(*data["validation_data"], verbose=0)
    assert accuracy == pytest.approx(found.best_value, abs=1e-6)


def test_a_search_whose_client_was_killed_finds_what_it_would_have_found(client, tmp_path, wait_for, state):
    whole = kept_search.search(tmp_path / "whole", client)
    mark = str(tmp_path / "third-trial")  # text, as the program has it: what build holds is compared
    command = [sys.executable, kept_search.__file__, client.scheduler.address, tmp_path / "kept", mark]
    process = subprocess.Popen(list(map(str, command)))
    try:
        kept = "trial-00000002-*/checkpoint-00000001-*.json"
        wait_for(
            lambda: any(path.stat().st_size for path in (tmp_path / "kept").glob(kept)),
            "the checkpoint of its second epoch",
            120,
        )
        wait_for(Path(f"{mark}-waited").exists, "its third epoch")
    finally:
        process.kill()
        process.wait(60)
    # Its processes would share the cores, and so round otherwise.
    wait_for(lambda: not state(client)["runs"], "the scheduler has ended its run")
    found = kept_search.search(tmp_path / "kept", client, mark, resume=True)
    for told, expected in zip(found.trials, whole.trials, strict=True):
        assert (told.params, told.state, told.value) == (expected.params, expected.state, expected.value)
        assert told.intermediate_values == expected.intermediate_values
    assert found.best_trial.number == whole.best_trial.number
    for told, expected in zip(found.best_model.get_weights(), whole.best_model.get_weights(), strict=True):
        np.testing.assert_array_equal(told, expected)
    assert Path(mark).read_text().split() == ["0", "1", "2", "2", "3"], "the third trial went on with its third epoch"
    with pytest.raises(dt.CheckpointError, match="seed was 3, and is 4"):
        kept_search.search(tmp_path / "kept", client, resume=True, seed=4)
    assert not list((tmp_path / "kept").glob("trial-*"))
