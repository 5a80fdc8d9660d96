"""``evaluate`` without a cluster: scores over all rows, and how they are joined."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import OneHotEncoder

import dask_train as dt
from dask_train.predicting import evaluation

RNG = np.random.default_rng(2)
X = RNG.normal(size=(100, 3))
Y = X.sum(axis=1)


@pytest.fixture(scope="module")
def regression() -> LinearRegression:
    return LinearRegression().fit(X, Y)


@pytest.fixture(scope="module")
def classification() -> LogisticRegression:
    return LogisticRegression().fit(X, Y > 0)


def test_estimators_are_scored_as_by_themselves(
    regression: LinearRegression, classification: LogisticRegression
) -> None:
    weights = RNG.random(100)
    x, w = da.from_array(X, chunks=((1, 60, 39), 3)), da.from_array(weights, chunks=50)
    noisy = Y + RNG.normal(size=100)
    assert dt.evaluate(regression, x, noisy, sample_weight=w) == pytest.approx(
        {"r2": regression.score(X, noisy, weights)}
    )
    assert dt.evaluate(classification, x, noisy > 0) == pytest.approx({"accuracy": classification.score(X, noisy > 0)})
    column = noisy[:, None] > 0  # as many as rows, in a column
    assert dt.evaluate(classification, x, column) == pytest.approx({"accuracy": classification.score(X, noisy > 0)})
    frame = dd.from_pandas(pd.DataFrame(X).assign(y=noisy, w=weights), npartitions=3)
    found = dt.evaluate(regression, frame, label="y", sample_weight="w", features=[0, 1, 2])
    assert found == pytest.approx({"r2": regression.score(X, noisy, weights)})
    for y, text in ((np.c_[noisy, noisy] > 0, "2 values, and a row of what is predicted 1"), (["a"] * 100, "y has a")):
        with pytest.raises((ValueError, TypeError), match=text):
            dt.evaluate(classification, x, y)
    with pytest.raises(ValueError, match=r"The targets are <U3, such as '(yes|no)', and the classifier's classes bool"):
        dt.evaluate(classification, x, np.where(noisy > 0, "yes", "no"))
    with pytest.raises(TypeError, match=r"model is a function; dask_train\.evaluate takes compiled Keras models"):
        dt.evaluate(lambda x: x, x, noisy)


def test_weights_may_be_the_targets_themselves() -> None:
    table = pd.DataFrame(X, columns=list("abc"))
    model, targets = LinearRegression().fit(table, Y), pd.Series(np.abs(Y) + RNG.random(100), name="y")
    for frame, both in ((table, targets), (dd.from_pandas(table, 3), dd.from_pandas(targets, 3))):
        found = dt.evaluate(model, frame, y=both, sample_weight=both)
        assert found == pytest.approx({"r2": model.score(table, targets, targets)})


def test_how_evaluation_goes_is_shown_as_keras_does(
    regression: LinearRegression, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dask_train.report.display.FIRST_LINE_S", 600.0)  # this machine may be slow
    x, y = da.from_array(X, chunks=(30, 3)), da.from_array(Y, chunks=30)
    for verbose in (0, "auto"):  # standard error is no terminal here
        dt.evaluate(regression, x, y, verbose=verbose)
    assert capsys.readouterr().err == ""
    dt.evaluate(regression, x, y, verbose=1)
    assert "evaluating · 4 of 4 partitions · " in capsys.readouterr().err.splitlines()[-1]
    dt.evaluate(regression, x, y, verbose=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("4 partitions - ")
    assert line.endswith(" - r2: 1")
    with pytest.raises(ValueError, match="verbose is 'loud'; it is 'auto', 0, 1 or 2"):
        dt.evaluate(regression, x, y, verbose="loud")


# How partitions are joined


def test_rows_before_each_partition_where_lengths_are_known() -> None:
    assert evaluation._offsets(["a", "b", "c"], [3, 0, 5]) == ([0, 3, 3], 2)
    assert evaluation._offsets(["a", "b", "c"], [3, 5, 0]) == ([0, 3, 8], 1), "no rows may follow the second"
    assert evaluation._offsets(["a"], [0]) == ([0], 0)


def test_rows_before_each_partition_where_they_are_not() -> None:
    parts = [dask.delayed([np.zeros((size, 2))]) for size in (3, 0, 5)]
    offsets, last = evaluation._offsets(parts, None)
    assert (list(dask.compute(*offsets, scheduler="sync")), last) == ([0, 3, 3], 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"x": X}, "There are no targets. Pass y, or label="),
        ({"x": pd.DataFrame(X)}, "name its label column, label=, or pass y, a column that was cut"),
        ({"x": pd.DataFrame(X), "y": Y, "label": 0}, "one of the two"),
        ({"x": pd.DataFrame(X), "y": Y[1:]}, "The columns of data have 100, 99 rows"),
        ({"x": pd.DataFrame(X), "y": pd.DataFrame(X)}, "y has 3 columns. Pass one"),
        ({"x": dd.from_pandas(pd.DataFrame(X)), "y": da.from_array(Y)}, "Put the columns in one frame"),
        (
            {"x": pd.DataFrame(X, columns=list("abc")), "label": "a", "sample_weight": "w"},
            "sample_weight='w' is no column",
        ),
        (
            {"x": da.from_array(X[:, :2], chunks=30), "y": Y},
            r"x has 2 features, and the model was fitted with 3. Pass those",
        ),
        (
            {"x": pd.DataFrame(X, columns=list("abc")), "label": "a"},
            r"x has 2 features, .* with 3. Name those .*features=",
        ),
        ({"x": np.ma.masked_greater(X, 1), "y": Y}, "x has a masked array"),
        ({"x": csr_matrix(X), "y": Y}, "x has a csr_matrix, a sparse matrix"),
        ({"x": da.from_array(X, chunks=30).map_blocks(csr_matrix), "y": Y}, "x has chunks of csr_matrix, sparse"),
        ({"x": X, "y": np.where(Y > 1, np.nan, Y)}, "targets in .* are missing or infinite, so there is no score"),
        ({"x": X, "y": Y, "sample_weight": np.where(Y > 1, np.nan, 1)}, "weights in .* are missing or infinite"),
        (
            {"x": pd.DataFrame(X, columns=list("abc")).assign(y=pd.array([None, *[1] * 99], "Int64")), "label": "y"},
            "1 targets in .* are missing",
        ),
    ],
)
def test_what_an_estimator_can_not_be_scored_on(
    regression: LinearRegression, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        dt.evaluate(regression, **arguments)


def test_targets_of_another_frame_go_by_the_index(regression: LinearRegression) -> None:
    x, y = dd.from_pandas(pd.DataFrame(X), npartitions=3), dd.from_pandas(pd.Series(Y), npartitions=3)
    assert dt.evaluate(regression, x, y) == dt.evaluate(regression, X, Y)
    with pytest.raises(ValueError, match="with different indexes"):
        dt.evaluate(regression, x, y.map_partitions(lambda part: part[::-1]))


@pytest.mark.parametrize("kind", [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=3)])
def test_targets_and_weights_beside_a_frame(regression: LinearRegression, kind: Any) -> None:
    whole = pd.DataFrame(X, columns=list("abc")).assign(y=Y + np.arange(100) % 3, w=np.arange(100.0))
    frame, x = kind(whole), whole[["a", "b", "c"]]
    named = LinearRegression().fit(x, Y)
    plain, weighted = named.score(x, whole.y), named.score(x, whole.y, whole.w)
    for y in (frame["y"], frame[["y"]]):
        assert dt.evaluate(named, frame[["a", "b", "c"]], y) == {"r2": pytest.approx(plain)}
        assert dt.evaluate(named, frame, y, features=["a", "b", "c"]) == {"r2": pytest.approx(plain)}
        for weights in (frame["w"], "w"):
            found = dt.evaluate(named, frame, y, features=["a", "b", "c"], sample_weight=weights)
            assert found == {"r2": pytest.approx(weighted)}
    found = dt.evaluate(named, frame, label="y", features=["a", "b", "c"], sample_weight=frame["w"])
    assert found == {"r2": pytest.approx(weighted)}


def test_weights_of_a_frame_are_no_feature(regression: LinearRegression) -> None:
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y + np.arange(100) % 3, w=np.arange(100.0))
    named = LinearRegression().fit(frame[["a", "b", "c"]], Y)
    found = dt.evaluate(named, dd.from_pandas(frame, npartitions=3), label="y", sample_weight="w")
    expected = named.score(frame[["a", "b", "c"]], frame.y, sample_weight=frame.w)
    assert found == {"r2": pytest.approx(expected)}


def test_a_frame_is_compared_with_the_label_of_the_schema() -> None:
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y + np.arange(100) % 3)
    named = LinearRegression().fit(frame[["a", "b", "c"]], Y)
    schema = dt.FrameSchema.of(frame, features=["a", "b", "c"], label="y")
    expected = {"r2": pytest.approx(named.score(frame[["a", "b", "c"]], frame.y))}
    assert dt.evaluate(named, dd.from_pandas(frame, npartitions=3), schema=schema) == expected
    assert dt.evaluate(named, frame[["a", "b", "c"]], frame["y"], schema=schema) == expected
    with pytest.raises(ValueError, match="x has no column 'y', which the model was fitted to predict"):
        dt.evaluate(named, frame[["a", "b", "c"]], schema=schema)


def test_a_loss_that_is_not_a_number_is_warned_of() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    x, y = np.array([[1.0, 2.0], [np.nan, 0.0]], np.float32), np.ones((2, 1), np.float32)
    with pytest.warns(UserWarning, match="The loss is NaN, so some of the model's outputs are") as warned:
        assert np.isnan(dt.evaluate(model, x, y)["loss"])
    assert [each.filename for each in warned] == [__file__]


def test_methods_get_missing_text_as_their_estimators_do() -> None:
    frame = pd.DataFrame({"city": ["a", None, "b", "a"]})
    chosen = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(frame)
    found = dt.predict(chosen.transform, dd.from_pandas(frame, npartitions=2), meta=np.empty((0, 3)))
    np.testing.assert_array_equal(found.compute(), chosen.transform(frame))
