"""Bags of dicts are predicted and scored as the arrays and frames that they hold."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error

import dask_train as dt
from dask_train.predicting.bags import as_rows

X = np.random.default_rng(2).normal(size=(20, 3))
Y, WEIGHTS = X.sum(axis=1) ** 2, np.arange(20.0)
FRAME = pd.DataFrame(X, columns=list("abc")).assign(y=Y, w=WEIGHTS)
NUMBERS = FRAME.to_dict("records")
ARRAYS = [{"x": x, "y": y, "w": w} for x, y, w in zip(X, Y, WEIGHTS, strict=True)]


def bag_of(rows: list[dict[str, Any]]) -> db.Bag:
    """Return a bag of four partitions, of which the third is empty."""
    bag = db.from_sequence(rows, npartitions=4)
    gone = rows[10:15]
    return bag.filter(lambda row: not any(row["w"] == other["w"] for other in gone))


LEFT = np.r_[0:10, 15:20]


@pytest.fixture(scope="module")
def named() -> LinearRegression:
    return LinearRegression().fit(FRAME[list("abc")], Y)


@pytest.fixture(scope="module")
def unnamed() -> LinearRegression:
    return LinearRegression().fit(X, Y)


def test_columns_of_numbers_are_predicted_as_a_frame(named: LinearRegression) -> None:
    lazy = dt.predict(named, bag_of(NUMBERS), features=list("abc"))
    assert isinstance(lazy, dd.Series)
    assert lazy.npartitions == 4
    wanted = named.predict(FRAME[list("abc")])[LEFT]
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), wanted)
    np.testing.assert_allclose(lazy.to_dask_array().compute(scheduler="synchronous"), wanted)


def test_columns_of_arrays_are_predicted_as_arrays(unnamed: LinearRegression) -> None:
    lazy = dt.predict(unnamed, bag_of(ARRAYS), features="x")
    assert lazy.numblocks == (4,)
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), unnamed.predict(X)[LEFT])
    several = dt.predict(lambda x, w: x * w[:, None], bag_of(ARRAYS), features={"x": "x", "w": "w"})
    np.testing.assert_allclose(several.compute(scheduler="synchronous"), (X * WEIGHTS[:, None])[LEFT])


def test_values_of_categories_are_those_of_the_model() -> None:
    frame = pd.DataFrame({"t": pd.Categorical(["b", "a", "c"]), "n": [1.0, 2.0, 3.0]})
    schema = dt.FrameSchema.of(frame)

    def codes(part: Any) -> np.ndarray:
        return np.asarray(part["t"].cat.codes + 10 * part["n"])

    bag = db.from_sequence([{"n": 1.0, "t": "c"}, {"n": 2.0, "t": "a"}, {"n": 3.0, "t": "b"}], npartitions=2)
    found = dt.predict(codes, bag, schema=schema, meta=np.empty(0)).compute(scheduler="synchronous")
    assert found.tolist() == [12.0, 20.0, 31.0]


@pytest.mark.parametrize("rows", [NUMBERS, ARRAYS])
def test_estimators_are_scored(named: LinearRegression, unnamed: LinearRegression, rows: list[dict[str, Any]]) -> None:
    model, features = (named, list("abc")) if rows is NUMBERS else (unnamed, "x")
    found = dt.evaluate(model, bag_of(rows), features=features, label="y", sample_weight="w", verbose=0)
    wanted = unnamed.score(X[LEFT], Y[LEFT], WEIGHTS[LEFT])
    assert found == pytest.approx({"r2": wanted})
    with pytest.raises(ValueError, match="x is a bag, whose rows have targets and weights with them"):
        dt.evaluate(model, bag_of(rows), Y, features=features)
    with pytest.raises(ValueError, match="name its label column"):
        dt.evaluate(model, bag_of(rows), features=features)


@pytest.mark.parametrize("rows", [NUMBERS, ARRAYS])
def test_boosters_are_scored(rows: list[dict[str, Any]]) -> None:
    features: Any = list("abc") if rows is NUMBERS else "x"
    matrix = xgboost.DMatrix(FRAME[list("abc")] if rows is NUMBERS else X, Y)
    booster = xgboost.train({"max_depth": 2}, matrix, 4)
    wanted = mean_squared_error(Y[LEFT], booster.predict(matrix)[LEFT], sample_weight=WEIGHTS[LEFT])
    names = {"features": features, "label": "y", "sample_weight": "w"}
    found = dt.evaluate(booster, bag_of(rows), metrics={"mse": mean_squared_error}, verbose=0, **names)
    assert found == {"mse": pytest.approx(wanted, rel=1e-5)}


def test_predictions_are_written_once(named: LinearRegression, unnamed: LinearRegression, tmp_path: Path) -> None:
    for model, rows, features in ((named, NUMBERS, list("abc")), (unnamed, ARRAYS, "x")):
        path = tmp_path / type(features).__name__
        first, second = [dt.predict_to(path, model, bag_of(rows), features=features, progress=False) for _ in range(2)]
        assert (first.num_rows, first.num_written, second.num_rows, second.num_written) == (15, 4, 15, 0)


@pytest.mark.parametrize(
    ("later", "features", "says"),
    [
        ({"a": 1.5, "x": [1.0]}, ["a"], "Values of 'a' in partition 1 of x, a bag, are float64, and those of the"),
        ({"a": "1", "x": [1.0]}, ["a"], "Values of 'a' in partition 1 of x, a bag, are (str|object), and those of"),
        ({"a": 1, "x": [1.0, 2.0]}, "x", r"Rows of 'x' in partition 1 of x, a bag, are float64 \(2,\), and the first"),
        ({"a": 1, "x": [1]}, "x", r"Rows of 'x' in partition 1 of x, a bag, are int64 \(1,\), and the first"),
    ],
)
def test_what_is_not_as_the_first_row_is_refused(later: dict[str, Any], features: Any, says: str) -> None:
    bag = db.from_sequence([{"a": 1, "x": [1.0]}, later], npartitions=2)
    lazy = dt.predict(lambda x: np.zeros(len(x)), bag, features=features, meta=np.empty(0))
    with pytest.raises(ValueError, match=says):
        lazy.compute(scheduler="synchronous")


def test_whole_numbers_become_floats_where_they_keep_their_value() -> None:
    bag = db.from_sequence([{"a": 1}, {"a": 0.5}, {"a": 2}], npartitions=2)
    lazy = dt.predict(lambda part: part["a"].to_numpy(), bag, meta=np.empty(0))
    assert lazy.compute(scheduler="synchronous").tolist() == [1.0, 0.5, 2.0]
    lazy = dt.predict(lambda part: part["a"], db.from_sequence([{"a": 0.5}, {"a": 2**60 + 1}], npartitions=2))
    with pytest.raises(ValueError, match="Values of 'a' in partition 1 of x, a bag, are int64"):
        lazy.compute(scheduler="synchronous")


def test_bags_that_hold_no_rows_are_refused_at_the_call() -> None:
    for bag, says in (
        (db.from_sequence([1, 2]), "The first partition of x, a bag, holds a int"),
        (db.from_sequence([{"a": 1}]).filter(lambda row: False), "The first partition of x, a bag, has no row"),
    ):
        with pytest.raises(ValueError, match=says), dask.config.set(scheduler="synchronous"):
            dt.predict(np.sum, bag)
    with pytest.raises(ValueError, match="x is a bag, of which the first partition has to be computed now"):
        as_rows("x", db.from_sequence([{"a": 1}]), SimpleNamespace(asynchronous=True))  # type: ignore[arg-type]
