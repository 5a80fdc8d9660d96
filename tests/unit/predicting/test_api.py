"""``predict``, ``evaluate`` and ``predict_to`` without a cluster: what is known before, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import OneHotEncoder

import dask_train as dt
from dask_train.data.columns import Column
from dask_train.predicting.server.values import fitting, holds

RNG = np.random.default_rng(2)
X = RNG.normal(size=(100, 3))
Y = X.sum(axis=1)


@pytest.fixture(scope="module")
def regression() -> LinearRegression:
    return LinearRegression().fit(X, Y)


@pytest.fixture(scope="module")
def classification() -> LogisticRegression:
    return LogisticRegression().fit(X, Y > 0)


def computed(lazy: Any) -> Any:
    return lazy.compute(scheduler="threads")


def test_an_estimator_by_its_methods(classification: LogisticRegression) -> None:
    x = da.from_array(X, chunks=(30, 2))
    lazy = dt.predict(classification, x, method="predict_proba")
    assert (lazy.shape, lazy.dtype, lazy.chunks) == ((100, 2), "f8", ((30, 30, 30, 10), (2,)))
    np.testing.assert_allclose(computed(lazy), classification.predict_proba(X))
    np.testing.assert_array_equal(computed(dt.predict(classification, x)), classification.predict(X))
    with pytest.raises(TypeError, match="LogisticRegression has no method 'transform'"):
        dt.predict(classification, x, method="transform")


def test_rows_of_unknown_number_and_partitions_without_any(regression: LinearRegression) -> None:
    x = da.from_array(X, chunks=(30, 3))
    lazy = dt.predict(regression, x[(x[:, 0] > 0) & (da.arange(100, chunks=30) >= 30)])
    assert np.isnan(lazy.shape[0])
    np.testing.assert_allclose(computed(lazy), regression.predict(X[30:][X[30:, 0] > 0]))


def test_a_function_of_several_inputs_with_several_outputs_calls_once_a_block() -> None:
    calls = []

    def both(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
        calls.append(len(a))
        return {"sums": a.sum(axis=1) + b, "shifted": a + 1}

    lazy = dt.predict(both, {"a": da.from_array(X, chunks=(50, 1)), "b": X[:, 0]})
    del calls[:]
    sums, shifted = da.compute(lazy["sums"], lazy["shifted"], scheduler="threads")
    np.testing.assert_allclose(sums, X.sum(axis=1) + X[:, 0])
    np.testing.assert_allclose(shifted, X + 1)
    assert calls == [50, 50]


def test_a_function_that_takes_no_sample_is_told_about() -> None:
    def picky(x: np.ndarray) -> np.ndarray:
        if not x.any():
            raise ZeroDivisionError("all zeros")
        return x[:, :2]

    with pytest.raises(ValueError, match=r"does not take sample rows \(ZeroDivisionError: all zeros\).*Pass meta="):
        dt.predict(picky, X)
    lazy = dt.predict(picky, X, meta=np.empty((0, 2)))
    np.testing.assert_allclose(computed(lazy), X[:, :2])
    wrong = dt.predict(picky, X, meta=np.empty((0, 3)))
    with pytest.raises(ValueError, match=r"array of shape \(100, 2\) of 100 rows, and \(100, 3\) was expected"):
        computed(wrong)


def test_text_is_never_cut_and_numbers_never_wrap() -> None:
    def label(x: np.ndarray) -> np.ndarray:
        return np.array(["yes" if value > 0 else "no" for value in x[:, 0]])

    def small(x: np.ndarray) -> np.ndarray:
        return x[:, 0].astype("i1" if np.abs(x).max() < 128 else "i8")

    x = np.array([[1.0], [-1.0], [300.0]])
    lazy = dt.predict(label, da.from_array(x, chunks=(2, 1)))
    assert (lazy.dtype, computed(lazy).tolist()) == (object, ["yes", "no", "yes"])
    short = dt.predict(label, x, meta=np.empty(0, "<U2"))
    with pytest.raises(ValueError, match=r"label, on a block, made <U3, and <U2 was told before"):
        computed(short)
    exact = dt.predict(label, x, meta=np.empty(0, "<U3"))
    assert (exact.dtype, computed(exact).tolist()) == ("<U3", ["yes", "no", "yes"])
    with pytest.raises(ValueError, match=r"small, on a block, made int64, and int8 was told.*meta=np\.empty\(.*'<i8'"):
        computed(dt.predict(small, x))
    wide = dt.predict(small, da.from_array(x, chunks=(1, 1)), meta=np.empty(0, "i8"))
    assert (wide.dtype, computed(wide).tolist()) == ("i8", [1, -1, 300])
    classifier = LogisticRegression().fit(X, np.where(Y > 0, "yes", "no"))
    assert dt.predict(classifier, X).dtype == "<U3"


def test_numbers_that_numpy_itself_has_not_come_as_float32() -> None:
    def half(x: np.ndarray) -> np.ndarray:
        return (x / 2).astype(ml_dtypes.bfloat16)

    found = dt.predict(half, da.from_array(np.arange(6.0), chunks=3)).compute(scheduler="sync")
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, np.arange(6.0) / 2)


def test_text_in_frames_and_samples_without_gaps(tmp_path: Path) -> None:
    table = pd.DataFrame({"text": ["a", "bcd"], "count": pd.array([1, 2], "Int64")})

    def upper(part: pd.DataFrame) -> Any:
        return [f"{text.upper()}{count:d}" for text, count in zip(part["text"], part["count"], strict=True)]

    frame = dd.from_pandas(table, npartitions=2)
    lazy = dt.predict(lambda part: np.array(upper(part)), frame, columns="upper")
    assert (computed(lazy).tolist(), computed(lazy).dtype) == (["A1", "BCD2"], lazy.dtype)
    dt.predict_to(tmp_path / "out", lambda part: np.array(upper(part)), frame)
    assert dd.read_parquet(tmp_path / "out").compute(scheduler="threads")["prediction"].tolist() == ["A1", "BCD2"]
    with pytest.raises(ValueError, match=r"makes objects, or text .* Pass meta= with the dtype"):
        dt.predict_to(tmp_path / "other", lambda x: np.array(["a"] * len(x)), X)


def test_rows_of_a_frame_stay_in_their_order() -> None:
    table = pd.DataFrame({"a": [3.0, 1.0, 2.0]}, index=[5, 6, 7])
    frame = dd.from_pandas(table, npartitions=1)
    with pytest.raises(ValueError, match="returned rows of another index, or in another order"):
        computed(dt.predict(lambda part: part.sort_values("a")["a"], frame))
    again = dt.predict(lambda part: part.reset_index(drop=True)["a"] * 2, frame)
    assert computed(again).to_dict() == {5: 6.0, 6: 2.0, 7: 4.0}


def test_masks_and_sparse_matrices_are_refused() -> None:
    masked = da.ma.masked_greater(da.from_array(X, chunks=50), 1)
    with pytest.raises(TypeError, match="x has a masked array, whose mask would be lost"):
        dt.predict(lambda x: x.sum(axis=1), masked)
    for odd, told in ((csr_matrix(X), "a csr_matrix, a"), (masked.map_blocks(csr_matrix), "chunks of csr_matrix,")):
        with pytest.raises(TypeError, match=f"x has {told} sparse"):
            dt.predict(lambda x: x.sum(axis=1), odd)
    encoder = OneHotEncoder().fit(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="OneHotEncoder makes a sparse matrix"):
        dt.predict(encoder, X, method="transform")


def test_outputs_go_by_name_and_never_by_chance() -> None:
    def both(x: np.ndarray) -> dict[str, np.ndarray]:
        made = {"a": x[:, 0], "b": x[:, 1]}
        return made if not x.any() else dict(reversed(made.items()))

    lazy = dt.predict(both, X)
    np.testing.assert_array_equal(computed(lazy["a"]), X[:, 0])
    other = dt.predict(lambda x: (x, x) if not x.any() else [x], X)
    with pytest.raises(ValueError, match=r"made a list of 1 of 100 rows, and a tuple of 2 of sample rows"):
        computed(other[0])


def test_blocks_are_what_was_told() -> None:
    wide = da.from_array(np.arange(3) + 2**40, chunks=3)
    lying = da.map_blocks(lambda block: block, wide, dtype="i4", meta=np.empty(0, "i4"))
    with pytest.raises(ValueError, match="is int64, and int32 was told before it was computed"):
        fitting("a block", [computed(lying)], [Column(dtype="<i4", row_shape=())])
    fitting("a block", [np.arange(3)], [Column(dtype="<f4", row_shape=())])


@pytest.mark.parametrize(
    ("dtype", "other", "holding"),
    [
        ("f8", "f4", True), ("f4", "f8", False), ("f8", "i4", True), ("f8", "i8", False), ("i1", "?", True),
        ("U3", "U2", True), ("U2", "U3", False), ("U30", "i8", False), ("O", "U3", True), ("i8", "O", False),
    ],
)  # fmt: skip
def test_which_values_have_a_place(dtype: str, other: str, holding: bool) -> None:
    assert holds(dtype, other) is holding


def test_frames_keep_names_index_and_divisions(regression: LinearRegression) -> None:
    table = pd.DataFrame(X, columns=list("abc"), index=np.arange(100) * 2)
    named = LinearRegression().fit(table, Y)  # which warns where it gets no frame
    frame = dd.from_pandas(table.assign(text="x"), npartitions=3)
    frame["outcome"] = dt.predict(named, frame, features=list("abc"))
    assert frame.known_divisions
    found = computed(frame)
    np.testing.assert_allclose(found.outcome, named.predict(table))
    assert found.index.equals(table.index)
    several = dt.predict(lambda part: part.to_numpy() * 2, frame, features=["a", "b"], columns=["p", "q"])
    assert list(several.columns) == ["p", "q"]
    np.testing.assert_allclose(computed(several), X[:, :2] * 2)


def test_what_can_not_be_is_refused(regression: LinearRegression) -> None:
    for arguments, error, text in (
        ((object(), X), TypeError, "model is a object; pass a Keras model"),
        ((regression, 7), TypeError, "x has a int; pass Dask or NumPy arrays, or one frame"),
        ((regression, (db.from_sequence([{"a": 1.0}]),)), TypeError, r"of dicts make one: bag\.to_dataframe\(\)"),
        ((regression, (X, X[1:])), ValueError, "have 100, 99 rows"),
        (("model.h5", X), ValueError, r"'model\.h5'; a model file is one that model\.save"),
    ):
        with pytest.raises(error, match=text):
            dt.predict(*arguments)
    with pytest.raises(ValueError, match="batch_size is 0"):
        dt.predict(regression, X, batch_size=0)
    with pytest.raises(ValueError, match="names columns, and x is a ndarray"):
        dt.predict(regression, X, features=["a"])
