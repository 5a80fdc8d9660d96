"""Linear models of Dask collections, fitted where the rows are: scikit-learn's coefficients."""

from __future__ import annotations

import os
import signal
import uuid

import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn import linear_model as plain
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV

import dask_train as dt
from dask_train import linear_model as ours
from dask_train.sklearn import Incremental
from dask_train.testing import check_dask_estimator

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(500, 4)) * [1, 2, 0.5, 1]
SIGNAL = X @ [1, -1, 0.5, 0]
WEIGHTS = RANDOM.integers(0, 3, 500).astype(float)
CHUNKS = (170, 0, 30, 300)
TARGETS = {
    "binary": np.where(SIGNAL + RANDOM.logistic(size=500) > 0, "yes", "no"),
    "classes": np.digitize(SIGNAL + RANDOM.logistic(size=500), [-1, 1]),
    "counts": RANDOM.poisson(np.exp(SIGNAL / 3)),
}


def on_dask(array):
    return da.from_array(array, chunks=(CHUNKS, *array.shape[1:]))


@pytest.mark.parametrize(
    ("kind", "target", "settings"),
    [
        ("LogisticRegression", "binary", {"tol": 1e-10, "class_weight": "balanced"}),
        ("LogisticRegression", "classes", {"tol": 1e-10}),
        ("PoissonRegressor", "counts", {"tol": 1e-10}),
        ("Ridge", "counts", {}),
        ("Lasso", "counts", {"alpha": 0.05, "tol": 1e-10}),
    ],
)
def test_coefficients_are_those_of_scikit_learn(client, kind, target, settings):
    y = TARGETS[target]
    found = getattr(ours, kind)(**settings, workers=2).fit(on_dask(X), on_dask(y), on_dask(WEIGHTS))
    solver = {} if kind in ("Ridge", "Lasso") else {"solver": "newton-cholesky"}
    wanted = getattr(plain, kind)(**settings, **solver).fit(X, y, WEIGHTS)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, rtol=1e-6, atol=1e-8)
    predicted = found.predict(on_dask(X))
    assert predicted.chunks[0] == CHUNKS, "lazily, the same partitions"
    if kind == "LogisticRegression":
        assert (predicted.compute() == wanted.predict(X)).all()
    else:
        np.testing.assert_allclose(predicted.compute(), wanted.predict(X), rtol=1e-6, atol=1e-8)
    assert found.score(on_dask(X), on_dask(y)) == pytest.approx(wanted.score(X, y), rel=1e-6)


@pytest.mark.parametrize("solver", ["newton-cd", "admm"])
def test_sparse_partitions_have_the_coefficients_of_dense_ones(client, solver):
    settings = {"l1_ratio": 0.5, "C": 0.2, "tol": 1e-10, "max_iter": 10_000, "solver": solver}
    sparse = on_dask(X).map_blocks(scipy.sparse.csr_array)
    found = ours.LogisticRegression(**settings, workers=2).fit(sparse, on_dask(TARGETS["binary"]), on_dask(WEIGHTS))
    wanted = ours.LogisticRegression(**settings).fit(X, TARGETS["binary"], WEIGHTS)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6, atol=1e-9)
    assert found.score(sparse, on_dask(TARGETS["binary"])) == wanted.score(X, TARGETS["binary"])


def test_frames_and_refused_targets(client, capsys, monkeypatch):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=TARGETS["counts"])
    table = dd.from_pandas(frame, npartitions=3)
    with monkeypatch.context() as patch:
        patch.setattr("dask_train.report.display.FIRST_LINE_S", 0.0)
        found = ours.PoissonRegressor(tol=1e-10).fit(table[list("abcd")], table["y"])
    assert "linear-model-" in capsys.readouterr().err, "a log gets lines of a long fit"
    wanted = plain.PoissonRegressor(tol=1e-10, solver="newton-cholesky").fit(X, TARGETS["counts"])
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6, atol=1e-8)
    assert found.feature_names_in_.tolist() == list("abcd")
    kinds = frame.assign(kind=pd.Categorical(np.where(X[:, 0] > 0, "up", "down")))
    of_kinds = dd.from_pandas(kinds, npartitions=3)
    mixed = ours.Ridge().fit(of_kinds[["kind", "b"]], of_kinds["y"])
    in_memory = ours.Ridge().fit(kinds[["kind", "b"]], kinds["y"])
    np.testing.assert_allclose(mixed.coef_, in_memory.coef_, rtol=1e-9)
    assert mixed.feature_names_in_.tolist() == ["kind[down]", "kind[up]", "b"]
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(table[list("bacd")])
    with pytest.raises(ValueError, match="X has 3 features, but Ridge is expecting 4"):
        ours.Ridge().fit(X, TARGETS["counts"]).predict(on_dask(X)[:, :3])
    with pytest.raises(ValueError, match=r"y are out of the valid range of the loss: they are below 0"):
        ours.PoissonRegressor().fit(on_dask(X), on_dask(-1.0 - TARGETS["counts"]))
    with pytest.raises(ValueError, match="rows differ: X 500, y 499"):
        ours.PoissonRegressor().fit(on_dask(X), TARGETS["counts"][1:])
    holes = X.copy()
    holes[400, 1] = np.nan
    with pytest.raises(ValueError, match="X has values that are NaN or infinite"):
        ours.Ridge().fit(on_dask(holes), on_dask(TARGETS["counts"]))


def test_searches_of_scikit_learn_take_dask_arrays_also_in_tasks_of_joblibs_dask_backend(client):
    params, y = {"C": [0.01, 1.0]}, TARGETS["binary"]
    wanted = GridSearchCV(plain.LogisticRegression(solver="newton-cholesky"), params, cv=2).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        for rows, labels in ((X, y), (on_dask(X), on_dask(y))):
            found = GridSearchCV(ours.LogisticRegression(), params, cv=2).fit(rows, labels)
            np.testing.assert_allclose(
                found.cv_results_["mean_test_score"], wanted.cv_results_["mean_test_score"], rtol=1e-12
            )
    assert found.predict(on_dask(X)).chunks[0] == CHUNKS


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [ours.LogisticRegression(tol=1e-8, workers=2), ours.ElasticNet(0.1, tol=1e-8, workers=2)], ids=str
)
def test_they_hold_to_the_suite_for_dask_collections(client, estimator):
    assert "check_methods_are_lazy" in check_dask_estimator(estimator, client)


class Counted:
    """Partitions whose making is counted, on whatever process."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, number):
        (self.folder / uuid.uuid4().hex).touch()
        rows = np.random.default_rng(number).normal(size=(50, 2))
        return pd.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "y": (rows[:, 0] > 0).astype(int)})

    def times(self):
        """How often, since this was asked last."""
        files = list(self.folder.iterdir())
        for file in files:
            file.unlink()
        return len(files)


def test_each_verb_computes_lazy_partitions_once(client, tmp_path):
    made = Counted(tmp_path)
    frame = dd.from_map(made, range(3), meta=pd.DataFrame({"a": [0.0], "b": [0.0], "y": [0]}))
    rows, y = frame[["a", "b"]], frame["y"]
    for workers in (1, 0):
        model = ours.LogisticRegression(workers=workers)
        for verb in (model.fit, model.score, ours.Ridge(workers=workers).fit):
            verb(rows, y)
            assert made.times() == 3
    ours.Ridge().fit(frame[["a"]], frame["b"]).score(frame[["a"]], frame["b"])
    assert made.times() == 6
    Incremental(SGDClassifier()).fit(rows, y)
    assert made.times() == 3
    with pytest.raises(ValueError, match="Input X contains NaN"):
        Incremental(SGDClassifier()).fit(rows.mask(rows > 0), y)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask, as it reads an index
def test_a_few_columns_of_parquet_whose_partitions_dask_joins(client, tmp_path):
    wide = pd.DataFrame(X, columns=list("abcd")).assign(y=X @ [1, 2, 0, 0], **{f"w{n}": 1.0 for n in range(20)})
    dd.from_pandas(wide, npartitions=6).to_parquet(tmp_path, compute_kwargs={"scheduler": "sync"})
    frame = dd.read_parquet(tmp_path)
    model = ours.LinearRegression().fit(frame[["a", "b"]], frame["y"])
    np.testing.assert_allclose(model.coef_, [1, 2])
    assert model.score(frame[["a", "b"]], frame["y"]) == pytest.approx(1.0)
    assert ours.LinearRegression().fit(frame[["a", "b"]], wide["y"].to_numpy()).coef_ == pytest.approx([1, 2])


def test_a_published_data_set_is_fitted_as_its_arrays(client):
    x, y, weights = on_dask(X), on_dask(TARGETS["binary"]), on_dask(WEIGHTS)
    with_weights, alone, wanted = (ours.LogisticRegression() for _ in range(3))
    dt.publish_dataset((x, y, weights), name="weighted")
    dt.fit(with_weights, dt.get_dataset("weighted"), workers=2)
    dt.fit(wanted, x, y, sample_weight=weights, workers=2)
    assert with_weights.coef_.tobytes() == wanted.coef_.tobytes()
    with pytest.raises(ValueError, match="has inputs, targets and weights together"):
        dt.fit(alone, dt.get_dataset("weighted"), y)
    dt.unpublish_dataset("weighted")


def tangled():
    """Features that hang together, of which a solver takes hundreds of steps; and labels."""
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(20, 20)))[0]
    x = da.random.default_rng(1).normal(size=(200_000, 20), chunks=(50_000, 20)) @ (turned * np.logspace(0, -2, 20))
    return dt.persist(x, (x[:, 0] > 0).astype(int))


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("keeps", "solver"),
    [
        (True, "lbfgs"),
        (True, "admm"),
        (False, "lbfgs"),
        pytest.param(True, "gradient_descent", marks=pytest.mark.nightly),
        pytest.param(False, "gradient_descent", marks=pytest.mark.nightly),
        pytest.param(False, "admm", marks=pytest.mark.nightly),
    ],
)
def test_a_killed_worker_leads_to_the_same_bits(client, tmp_path, until, solver, keeps):
    rows, labels = tangled()
    settings = {"solver": solver, "C": 1e4, "tol": 1e-9, "max_iter": 150}
    whole = ours.LogisticRegression(**settings)
    undisturbed = dt.fit(whole, rows, labels, workers=2)
    found = ours.LogisticRegression(**settings)
    kept = {"checkpoint": dt.Checkpoint(tmp_path, every_steps=2, every_s=None)} if keeps else {}
    run = dt.fit(found, rows, labels, workers=2, wait=False, **kept)
    os.kill(until(run, 5)["worker", 1]["pid"], signal.SIGKILL)
    result = run.result()
    assert len(result.attempts) == 2
    assert (found.coef_.tobytes(), found.n_iter_) == (whole.coef_.tobytes(), whole.n_iter_)
    assert result.history == undisturbed.history
    first = next(score["step"] for score in result.scores if score["attempt"] == 1)
    assert (first > 1) == keeps, "it resumes where it was, or begins again"
    assert (result.ledger.dropped, result.ledger.trained) == (0, 200_000)


def test_a_run_of_a_linear_model_is_stopped_and_resumes_with_other_workers(client, tmp_path):
    rows, labels = tangled()
    # It converges, so rounding errors don't add up; in hundreds of steps, so that the stop comes before the last.
    settings = {"solver": "gradient_descent", "C": 3e-3, "tol": 1e-9, "max_iter": 1000}
    whole = ours.LogisticRegression(**settings)
    dt.fit(whole, rows, labels, workers=2)
    found = ours.LogisticRegression(**settings)
    result = dt.fit(found, rows, labels, workers=2, checkpoint=tmp_path, stop="steps >= 3")
    assert result.stop_reason
    assert 3 <= len(result.epoch) < whole.n_iter_
    dt.fit(found, rows, labels, workers=1, checkpoint=tmp_path, resume=True)
    assert len(result.epoch) < found.n_iter_ < 1000
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=1e-6, atol=1e-6)
