"""Predictions and scores of Dask collections, and frames with categories; what is computed here is by threads."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

import dask_train as dt
from dask_train import linear_model as ours
from dask_train.linear_model.columns import columns_of
from dask_train.linear_model.fitting import Task

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(500, 4))
SIGNAL = X @ [1, -1, 0.5, 0]
WEIGHTS = RANDOM.integers(0, 3, 500).astype(float)
BINARY = np.where(SIGNAL + RANDOM.logistic(size=500) > 0, "yes", "no")
CLASSES = np.digitize(SIGNAL + RANDOM.logistic(size=500), [-1, 1])
COUNTS = RANDOM.poisson(np.exp(SIGNAL / 3))
CHUNKS = (170, 0, 30, 300)
MODELS = [
    (ours.LogisticRegression(), BINARY),
    (ours.LogisticRegression(), CLASSES),
    (ours.PoissonRegressor(), COUNTS),
    (ours.TweedieRegressor(power=1.5), COUNTS),
    (ours.Ridge(), SIGNAL + 1e8),
    (ours.Lasso(alpha=0.1), np.column_stack([SIGNAL, COUNTS])),
]


def on_dask(array):
    return da.from_array(array, chunks=(CHUNKS, *array.shape[1:]))


def sparse_on_dask(array):
    return on_dask(array).map_blocks(scipy.sparse.csr_array)


@pytest.mark.parametrize("spread", [on_dask, sparse_on_dask], ids=["dense", "sparse"])
@pytest.mark.parametrize(("model", "y"), MODELS, ids=[str(model) + str(y.shape) for model, y in MODELS])
def test_predictions_are_lazy_and_scores_are_numbers_equal_to_those_of_arrays(model, y, spread):
    model = model.fit(X, y)
    for name in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, name):
            lazy, wanted = getattr(model, name)(spread(X)), getattr(model, name)(X)
            assert (lazy.chunks[0], lazy.shape, lazy.dtype) == (CHUNKS, wanted.shape, wanted.dtype), name
            found = lazy.compute()
            assert type(found) is np.ndarray
            if found.dtype.kind == "U":
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    for weights in (None, WEIGHTS):
        spread_weights = None if weights is None else on_dask(weights)
        score = model.score(spread(X), on_dask(y), spread_weights)
        assert type(score) is float
        assert score == pytest.approx(model.score(X, y, weights), rel=1e-12)
    assert model.score(spread(X), y) == pytest.approx(model.score(X, y), rel=1e-12), "targets of NumPy"


def test_columns_of_categories_become_an_indicator_each():
    colours = pd.Categorical(RANDOM.choice(["red", "green"], 500), categories=["red", "green", "blue"])
    frame = pd.DataFrame({"a": X[:, 0], "colour": colours, "b": X[:, 1]})
    y = SIGNAL + (colours == "red")
    indicators = np.column_stack([X[:, 0], colours == "red", colours == "green", colours == "blue", X[:, 1]])
    model, wanted = ours.Ridge().fit(frame, y), ours.Ridge().fit(indicators.astype(float), y)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == ["a", "colour[red]", "colour[green]", "colour[blue]", "b"]
    np.testing.assert_allclose(model.predict(frame), wanted.predict(indicators.astype(float)), atol=1e-12)
    other_order = frame.assign(colour=frame["colour"].cat.set_categories(["blue", "green", "red"]))
    for table in (dd.from_pandas(frame, npartitions=3), dd.from_pandas(other_order, npartitions=3)):
        np.testing.assert_allclose(model.predict(table).compute(), model.predict(frame), atol=1e-12)
    for odd in ("yellow", None):
        unseen = frame.assign(colour=frame["colour"].astype(object).where(frame.index != 7, odd).astype("category"))
        with pytest.raises(ValueError, match=r"olumn 'colour' of X (has 'yellow'|are missing), .* the categories"):
            model.predict(dd.from_pandas(unseen, npartitions=3)).compute()
    unknown = dd.from_pandas(frame, npartitions=3)
    unknown["colour"] = unknown["colour"].cat.as_unknown()
    with pytest.raises(ValueError, match="categories of column 'colour' of X are not known yet"):
        ours.Ridge().fit(unknown, unknown["a"])


class OtherFrame:
    """A frame of another library than pandas, such as polars: its dtypes are a list."""

    def __init__(self, array):
        self._array = array
        self.shape, self.columns = array.shape, [f"column {number}" for number in range(array.shape[1])]
        self.dtypes = ["Float64"] * array.shape[1]

    def __len__(self):
        return len(self._array)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype)


def test_frames_of_other_libraries_are_taken_as_scikit_learn_takes_them():
    model, wanted = (ours.Ridge().fit(rows, SIGNAL) for rows in (OtherFrame(X), X))
    np.testing.assert_array_equal(model.predict(OtherFrame(X)), wanted.predict(X))
    with pytest.raises(ValueError, match=r"Column 'a' of X has the dtype .*, and a linear model takes numbers"):
        ours.Ridge().fit(pd.DataFrame({"a": np.resize(["x", "y"], 500)}), SIGNAL)


def test_a_model_keeps_the_schema_of_its_frame_for_predictions_elsewhere():
    frame = pd.DataFrame({"a": X[:, 0], "colour": pd.Categorical(np.resize(["red", "green", "blue"], 500))})
    y = SIGNAL + 3 * (frame["colour"] == "red")
    model = ours.Ridge().fit(frame, y)
    assert model.schema_ == dt.FrameSchema.of(frame)
    model = pickle.loads(pickle.dumps(model))
    later = frame[["colour", "a"]].iloc[:7].assign(colour=pd.Categorical(frame["colour"][:7], ["red", "blue", "green"]))
    later = later.assign(colour=later["colour"].cat.add_categories("never there"), y=y[:7], other=0.0)
    table, wanted = dd.from_pandas(later, npartitions=2), model.predict(frame[:7])
    np.testing.assert_allclose(dt.predict(model, table).compute(scheduler="threads"), wanted)
    score = model.score(frame[:7], y[:7])
    assert dt.evaluate(model, table, label="y")["r2"] == pytest.approx(score)
    strange = table.assign(colour=table["colour"].astype(object).where(table["a"] < 0, "mauve"))
    with pytest.raises(ValueError, match=r"Column 'colour' of x has 'mauve', .*'blue', 'green', 'red'"):
        dt.predict(model, strange).compute(scheduler="threads")
    assert ours.Ridge().fit(X, SIGNAL).schema_ is None


def test_a_warm_start_is_none_from_coefficients_of_other_categories():
    frame = pd.DataFrame({"colour": pd.Categorical(np.resize(["red", "green"], 500))})
    other = frame.assign(colour=frame["colour"].cat.reorder_categories(["red", "green"]))
    model = ours.LogisticRegression(warm_start=True).fit(frame, BINARY)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(other, np.zeros(500))
    assert model.schema_.categories == {"colour": ["green", "red"]}, "those of its coefficients"
    np.testing.assert_allclose(model.fit(other, BINARY).coef_[0, ::-1], model.fit(frame, BINARY).coef_[0], rtol=1e-3)


def test_frames_whose_rows_may_not_belong_together_are_refused():
    """By position, as arrays go together, ages would meet the targets of other people."""
    frame = dd.from_pandas(
        pd.DataFrame({"a": RANDOM.permutation(60), "b": np.arange(60.0), "y": SIGNAL[:60]}), npartitions=3
    )
    ordered = frame.sort_values("a")
    for given in (
        {"X": ordered[["a", "b"]], "y": frame["y"]},
        {"X": frame[["a", "b"]], "y": frame["y"], "sample_weight": ordered["b"]},
    ):
        with pytest.raises(ValueError, match=r"not cut from one frame.*their rows may not belong together"):
            ours.Ridge(workers=0).fit(**given)
    model = ours.Ridge(workers=0).fit(ordered[["a", "b"]], ordered["y"])
    with pytest.raises(ValueError, match="not cut from one frame"):
        model.score(ordered[["a", "b"]], frame["y"])


def test_frames_that_were_filtered_differently_are_refused_beside_an_array_of_weights():
    frame = pd.DataFrame({"a": np.arange(8.0), "y": np.arange(8.0)})
    frame.loc[3, "a"], frame.loc[5, "y"] = np.nan, np.nan
    lazy = dd.from_pandas(frame, npartitions=1)
    for weights in (np.ones(7), None):
        with pytest.raises(ValueError, match="7 and 7 rows with different indexes"):
            ours.Ridge(workers=0).fit(lazy[["a"]].dropna(), lazy["y"].dropna(), weights)
    whole = lazy.dropna()
    model = ours.Ridge(workers=0).fit(whole[["a"]], whole["y"], np.ones(6))
    assert model.coef_ == pytest.approx(ours.Ridge(workers=0).fit(whole[["a"]], whole["y"]).coef_)


def test_arrays_of_unknown_length_are_computed_once_beside_an_array_of_weights():
    made = []

    def rows():
        made.append(np.random.default_rng().permutation(10.0 * np.arange(6)))
        return made[-1]

    part = dask.delayed(rows, pure=False)()
    lazy = da.from_delayed(part, (np.nan,), float)
    found = columns_of(lazy[:, None], 3 * lazy, np.ones(6), 0)
    assert len(made) == 1
    np.testing.assert_array_equal(3 * found[0][:, 0], found[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fails", ["while it is posed", "while it is solved", "when it is taken"])
def test_a_fit_that_fails_leaves_the_model_with_the_columns_of_its_coefficients(fails, monkeypatch):
    frame = pd.DataFrame({"n": X[:, 0], "c": pd.Categorical(BINARY)})
    model = ours.LogisticRegression(max_iter=100).fit(frame, BINARY)
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}
    labels = np.zeros(500) if fails == "while it is posed" else BINARY
    model.set_params(max_iter=1 if fails == "when it is taken" else 100)
    if fails == "while it is solved":
        monkeypatch.setattr(Task, "__call__", lambda *_: 1 / 0)
    with pytest.raises((ValueError, ZeroDivisionError, ConvergenceWarning)):
        model.fit(pd.DataFrame(X[:, :3], columns=["a", "b", "c"]), labels)
    assert {name: value for name, value in vars(model).items() if name.endswith("_")} == before
