"""Searches over linear models on a real cluster: the best is that of ``fit``, and a search that dies is resumed."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import optuna
import pandas as pd
import pytest

import dask_train as dt
from dask_train.linear_model import LogisticRegression

pytestmark = pytest.mark.slow

ROWS = 600


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return x, np.array(["no", "yes"])[(x.sum(1) + random.normal(size=ROWS) > 0).astype(int)]


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_best_model_is_that_of_fit_and_a_resumed_search_finds_the_same(client, tmp_path, workers):
    x, y = (da.from_array(each, chunks=(200, *each.shape[1:])) for each in rows())

    def build(trial):
        solver = trial.suggest_categorical("solver", ["lbfgs", "admm"])
        if trial.number == 1:
            raise RuntimeError("of the user's")
        return LogisticRegression(C=trial.suggest_float("C", 1e-4, 10.0, log=True), solver=solver)

    def searched(trials, **settings):
        given = {"validation_data": rows(1), "checkpoint": tmp_path, "sampler": optuna.samplers.RandomSampler(1)}
        given |= {"metric": "val_loss", "direction": "minimize", "concurrency": 1, "workers_per_trial": workers}
        return dt.search(build, x, y, trials=trials, client=client, **given, **settings)

    first = searched(3)
    assert [trial.state.name for trial in first.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    found = searched(5, resume=True)
    assert [trial.value for trial in found.trials[:3]] == [trial.value for trial in first.trials]
    best = found.best_model
    model = LogisticRegression(**found.best_params)
    dt.fit(model, x, y, workers=workers, client=client)
    np.testing.assert_allclose(best.coef_, model.coef_, rtol=1e-9)
    xv, yv = rows(1)
    chances = best.predict_proba(xv)[np.arange(ROWS), np.searchsorted(best.classes_, yv)]
    assert -np.log(chances).mean() == pytest.approx(found.best_value, rel=1e-9)
    assert not list(tmp_path.glob("trial-*"))


def test_scores_that_a_linear_model_has_not_end_the_search(client):
    with pytest.raises(ValueError, match="no score 'loss' at the end of an epoch; there are val_loss, val_accuracy"):
        dt.search(
            lambda _: LogisticRegression(),
            *rows(),
            validation_data=rows(1),
            metric="loss",
            direction="minimize",
            trials=1,
            client=client,
        )


def test_categories_of_frames_are_indicators(client):
    x, y = rows()
    kinds = pd.Categorical(np.where(x[:, 0] > 0.5, "much", np.where(x[:, 0] < 0, "none", "some")))
    frame = pd.DataFrame({"kind": kinds, "b": x[:, 1], "c": x[:, 2], "y": y})
    table, later = dd.from_pandas(frame, npartitions=3), frame.assign(kind=frame["kind"].astype(str))
    columns = {"features": ["c", "kind"], "label": "y"}
    found = dt.search(
        lambda trial: LogisticRegression(C=trial.suggest_float("C", 0.1, 1.0)),
        table,
        validation_data=later,
        metric="val_accuracy",
        direction="maximize",
        trials=2,
        client=client,
        **columns,
    )
    model = LogisticRegression(**found.best_params)
    dt.fit(model, table, **columns, workers=1, client=client)
    assert found.best_model.feature_names_in_.tolist() == ["c", "kind[much]", "kind[none]", "kind[some]"]
    np.testing.assert_allclose(found.best_model.coef_, model.coef_, rtol=1e-6)
    assert found.best_value == pytest.approx(found.best_model.score(later[["c", "kind"]], y))
