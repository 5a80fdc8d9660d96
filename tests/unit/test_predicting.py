"""``predict``, ``evaluate`` and ``predict_to`` without a cluster: what is known before, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.linear_model import LinearRegression, LogisticRegression

import dask_train as dt

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
        ((regression, (X, X[1:])), ValueError, "have 100, 99 rows"),
        (("model.h5", X), ValueError, r"'model\.h5'; a model file is one that model\.save"),
    ):
        with pytest.raises(error, match=text):
            dt.predict(*arguments)
    with pytest.raises(ValueError, match="batch_size is 0"):
        dt.predict(regression, X, batch_size=0)
    with pytest.raises(ValueError, match="names columns, and x is a ndarray"):
        dt.predict(regression, X, features=["a"])


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
    with pytest.raises(TypeError, match=r"model is a function; dask_train\.evaluate takes compiled Keras models"):
        dt.evaluate(lambda x: x, x, noisy)


class Stopping:
    """A function that fails on a row, as long as it is told to, once ``when`` returns."""

    def __init__(self, folder: Path, when: Callable[[], Any]) -> None:
        self.folder, self.when = folder, when

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if (x == 99.0).any() and (self.folder / "fail").exists():
            self.when()
            raise RuntimeError("power cut")
        (self.folder / f"called-{x[0, 0]}").touch()
        return x.sum(axis=1)

    def __dask_tokenize__(self) -> str:
        return "Stopping"


@pytest.mark.parametrize("name", ["sums", "sums.zarr"])
def test_what_was_interrupted_goes_on(tmp_path: Path, name: str, wait_for: Callable[..., Any]) -> None:
    x = np.arange(60.0).reshape(20, 3) + 1000
    x[13, 1] = 99.0
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "fail").touch()
    done, where = tmp_path / name / "_dask_train" / "done", str(tmp_path / name)
    function = Stopping(notes, lambda: wait_for(lambda: len(list(done.glob("[0-9]*"))) == 3, "the other parts"))
    lazy = da.from_array(x, chunks=(6, 3))
    with dask.config.set(num_workers=2), pytest.raises(RuntimeError, match="power cut"):
        dt.predict_to(where, function, lazy)
    (notes / "fail").unlink()
    for note in notes.iterdir():
        note.unlink()
    result = dt.predict_to(where, function, lazy)
    assert (result.num_parts, result.num_rows, result.num_written) == (4, 20, 1)
    assert len(list(notes.glob("called-1*"))) == 1
    assert dt.predict_to(where, function, lazy).num_written == 0
    if name.endswith(".zarr"):
        found = zarr.open_array(where, mode="r")[:]
    else:
        found = np.concatenate([np.load(tmp_path / name / f"part-{part:05}.npy") for part in range(4)])
    np.testing.assert_allclose(found, x.sum(axis=1))
    with pytest.raises(ValueError, match="predictions of something else"):
        dt.predict_to(where, function, da.from_array(x, chunks=(10, 3)))


def test_a_frame_is_written_as_parquet(tmp_path: Path, regression: LinearRegression) -> None:
    table = pd.DataFrame(X, columns=list("abc"))
    named = LinearRegression().fit(table, Y)
    result = dt.predict_to(f"file://{tmp_path}/out", named, dd.from_pandas(table, npartitions=3), columns="y")
    assert (result.kind, result.num_rows, result.num_written) == ("parquet", 100, 3)
    read = dd.read_parquet(tmp_path / "out").compute(scheduler="threads")
    np.testing.assert_allclose(read.y, Y)


def test_a_result_survives_pickling() -> None:
    result = dt.PredictedFiles(path="a", kind="npy", num_parts=1, num_rows=2, num_written=1)
    assert pickle.loads(pickle.dumps(result)) == result
