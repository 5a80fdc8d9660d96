"""Searches over boosted trees on real clusters: models are those of ``fit``; trials are pruned, fail, die, resume."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import keras
import lightgbm
import numpy as np
import optuna
import pandas as pd
import pytest
import xgboost

import dask_train as dt

pytestmark = pytest.mark.slow

ROWS, ROUNDS = 600, 12
METRICS = {xgboost.XGBClassifier: "val_logloss", lightgbm.LGBMClassifier: "val_binary_logloss"}


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return x, (x.sum(1) + random.normal(size=ROWS) > 0).astype("i8")


def lazily(seed=0):
    return tuple(da.from_array(each, chunks=(200, *each.shape[1:])) for each in rows(seed))


def made(kind, rate, **params):
    given = {"n_estimators": ROUNDS, "learning_rate": rate, "max_depth": 4, "random_state": 1}
    return kind(**given, **({} if kind is xgboost.XGBClassifier else {"verbosity": -1}), **params)


def search(kind, build, client, **settings):
    given = {"metric": METRICS[kind], "direction": "minimize", "validation_data": rows(1), "seed": 3, "trials": 3}
    return dt.search(build, *lazily(), client=client, **{**given, **settings})


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        (xgboost.XGBClassifier, 2),
        (lightgbm.LGBMClassifier, 2),
        pytest.param(xgboost.XGBClassifier, 1, marks=pytest.mark.nightly),
    ],
)
def test_the_best_estimator_predicts_as_that_of_fit_after_its_best_round(client, kind, workers):
    def build(trial):
        return made(kind, trial.suggest_float("rate", 0.5, 1.0))  # so much that late rounds make it worse

    found = search(kind, build, client, workers_per_trial=workers, concurrency=1)  # as many threads as fit has
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 3
    best, rounds = found.best_trial, found.best_trial.user_attrs["epoch"] + 1
    assert rounds < ROUNDS, "later rounds are no part of what predicts"
    model = made(kind, best.params["rate"]).set_params(n_estimators=rounds)
    result = dt.fit(model, *lazily(), validation_data=rows(1), workers=workers, client=client)
    assert result.history[METRICS[kind]][-1] == pytest.approx(found.best_value, rel=1e-6)
    x, y = rows(1)
    chances = found.best_model.predict_proba(x)
    np.testing.assert_allclose(chances, model.predict_proba(x), rtol=1e-6)
    assert -np.log(chances[np.arange(ROWS), y]).mean() == pytest.approx(found.best_value, rel=1e-6)
    np.testing.assert_array_equal(dt.predict(found.best_model, x, client=client).compute(), found.best_model.predict(x))
    assert found.best_model.get_params()["n_estimators"] == ROUNDS


def test_each_trial_ends_in_its_own_way_and_frames_keep_their_categories(client):
    class PrunesOne(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.params["kind"] == "pruned" and trial.last_step >= 1

    def build(trial):
        kind = trial.suggest_categorical("kind", ["learns", "pruned", "dart", "told"])
        params = {"booster": "dart"} if kind == "dart" else {"n_estimators": 10**9} if kind == "pruned" else {}
        model = xgboost.XGBRegressor(**{"n_estimators": 3, "enable_categorical": True, **params})
        return (model, {"epochs": 3}) if kind == "told" else model

    def frame(seed):
        x, _ = rows(seed)
        colours = pd.Categorical.from_codes((x[:, 0] > 0).astype(int) * 2, ["blue", "green", "red"])
        return pd.DataFrame({"colour": colours, "size": x[:, 1], "price": (x[:, 0] > 0) * 10.0 + x[:, 1]})

    found = dt.search(
        build,
        frame(0),
        label="price",
        validation_data=frame(1),
        metric="val_rmse",
        direction="minimize",
        trials=50,
        concurrency=2,
        sampler=optuna.samplers.GridSampler({"kind": ["learns", "pruned", "dart", "told"]}, seed=0),
        pruner=PrunesOne(),
        client=client,
    )
    trials = {trial.params["kind"]: trial for trial in found.trials}
    states = {kind: trial.state.name for kind, trial in trials.items()}
    assert states == {"learns": "COMPLETE", "pruned": "PRUNED", "dart": "FAIL", "told": "FAIL"}
    assert "booster='dart': later rounds change" in trials["dart"].user_attrs["error"]
    assert "build told epochs of a trial; it can tell nothing beside" in trials["told"].user_attrs["error"]
    later = frame(1)
    later["colour"] = later["colour"].cat.set_categories(["red", "green", "blue"])  # other codes
    predicted = dt.predict(found.best_model, later, client=client).compute()
    assert np.sqrt(np.mean((predicted - later["price"]) ** 2)) == pytest.approx(found.best_value, rel=1e-5)


def torn(seed):
    """A frame of which some categories are missing."""
    x, y = rows(seed)
    kind = pd.Categorical(np.where(x[:, 0] > 0, "up", "down")).copy()
    kind[np.arange(seed, ROWS, 7)] = None
    return dd.from_pandas(pd.DataFrame({"kind": kind, "size": x[:, 1], "y": y}), npartitions=3)


@pytest.mark.parametrize("kind", [xgboost.XGBClassifier, lightgbm.LGBMClassifier])
def test_missing_categories_are_those_of_fit_and_refused_for_models_that_take_codes(client, kind):
    by_kind = {"enable_categorical": True} if kind is xgboost.XGBClassifier else {}
    named = {"features": ["kind", "size"], "label": "y", "validation_data": torn(1), "client": client}
    settings = {**named, "metric": METRICS[kind], "direction": "minimize", "trials": 1}
    found = dt.search(lambda _: made(kind, 0.3, **by_kind), torn(0), **settings)
    wanted = dt.fit(made(kind, 0.3, **by_kind), torn(0), workers=1, **named)
    assert found.best_value == pytest.approx(min(wanted.history[METRICS[kind]]), rel=1e-9)

    def network(_):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    for data, validation, says in ((torn(0), torn(1), "86 .* of data"), (torn(0).dropna(), torn(1), "86 .* of valid")):
        with pytest.raises(ValueError, match=f"{says}.* are missing, which is none of the categories"):
            dt.search(network, data, **{**settings, "metric": "val_loss", "validation_data": validation})


class Dying(xgboost.callback.TrainingCallback):
    """Notes rounds, and kills its process once, in the ninth round, when a checkpoint is there.

    Which one it is depends on how long the first takes to be written: one that is due meanwhile waits for it.
    """

    def __init__(self, folder, mark):
        self.folder, self.mark = folder, mark

    def after_iteration(self, model, epoch, evals_log):
        if self.mark:
            with open(self.mark, "a") as file:
                file.write(f"{epoch} ")
            if epoch == 8 and not os.path.exists(f"{self.mark}-died"):
                until = time.monotonic() + 60
                kept = "trial-00000001-*/checkpoint-*.json"
                while not any(Path(self.folder).glob(kept)) and time.monotonic() < until:
                    time.sleep(0.05)
                open(f"{self.mark}-died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return False


def test_a_trial_whose_process_dies_and_a_search_that_is_resumed_find_what_they_would_have_found(client, tmp_path):
    def searched(folder, **settings):
        mark = str(tmp_path / "rounds") if folder.name == "kept" else ""

        def build(trial):
            callbacks = [Dying(str(folder), mark if trial.number in (1, 2) else "")]
            return made(
                xgboost.XGBClassifier, trial.suggest_float("rate", 0.5, 1.0), subsample=0.7, callbacks=callbacks
            )

        settings |= {"checkpoint": dt.Checkpoint(folder, every_steps=3), "sampler": optuna.samplers.RandomSampler(1)}
        found = search(xgboost.XGBClassifier, build, client, concurrency=1, **settings)
        return found, {trial.params["rate"]: trial.value for trial in found.trials if trial.value is not None}

    whole, expected = searched(tmp_path / "whole", trials=4)
    first, _ = searched(tmp_path / "kept", trials=2)
    assert [trial.state.name for trial in first.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert first.trials[2].user_attrs["retry_of"] == 1
    rounds = list(map(int, Path(tmp_path / "rounds").read_text().split()))
    assert rounds[:9] == list(range(9))
    assert 0 < rounds[9] <= 9, "it went on behind its checkpoint"
    assert rounds[9:] == list(range(rounds[9], ROUNDS))
    found, told = searched(tmp_path / "kept", trials=4, resume=True)
    assert (len(found.trials), told) == (5, expected)
    x, _ = rows(1)
    np.testing.assert_array_equal(found.best_model.predict_proba(x), whole.best_model.predict_proba(x))
    assert not list((tmp_path / "kept").glob("trial-*"))
