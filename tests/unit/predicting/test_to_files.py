"""``predict_to`` without a cluster: what was interrupted goes on, and nothing else is taken for done."""

from __future__ import annotations

import os
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
from sklearn.linear_model import LinearRegression

import dask_train as dt
from dask_train.predicting import to_files

RNG = np.random.default_rng(2)
X = RNG.normal(size=(100, 3))
Y = X.sum(axis=1)


@pytest.fixture(scope="module")
def regression() -> LinearRegression:
    return LinearRegression().fit(X, Y)


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
def test_what_was_interrupted_goes_on(
    tmp_path: Path, name: str, wait_for: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(60.0).reshape(20, 3) + 1000
    x[13, 1] = 99.0
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "fail").touch()
    done, where = tmp_path / name / "_dask_train" / "done", str(tmp_path / name)
    function = Stopping(notes, lambda: wait_for(lambda: len(list(done.glob("[0-9]*"))) == 3, "the other parts"))
    lazy = da.from_array(x, chunks=(6, 3))
    with dask.config.set(num_workers=2), pytest.raises(RuntimeError, match="power cut") as cut:
        dt.predict_to(where, function, lazy)
    assert (cut.value.result.num_parts, cut.value.result.num_rows, cut.value.result.num_written) == (4, 14, 3)
    (notes / "fail").unlink()
    for note in notes.iterdir():
        note.unlink()
    capsys.readouterr()
    result = dt.predict_to(where, function, lazy, progress=True)
    assert (result.num_parts, result.num_rows, result.num_written) == (4, 20, 1)
    first, *_, last = capsys.readouterr().err.splitlines()  # those of earlier calls are counted
    assert first.startswith("predicting")
    assert "3 of 4 partitions" in first
    assert "4 of 4 partitions" in last
    assert len(list(notes.glob("called-1*"))) == 1
    assert dt.predict_to(where, function, lazy).num_written == 0
    with pytest.raises(TypeError, match="progress is 1; pass True, False, or None"):
        dt.predict_to(where, function, lazy, progress=1)  # type: ignore[arg-type]
    if name.endswith(".zarr"):
        found = zarr.open_array(where, mode="r")[:]
    else:
        found = np.concatenate([np.load(tmp_path / name / f"part-{part:05}.npy") for part in range(4)])
    np.testing.assert_allclose(found, x.sum(axis=1))
    with pytest.raises(ValueError, match="predictions of something else"):
        dt.predict_to(where, function, da.from_array(x, chunks=(10, 3)))


def test_other_data_of_the_same_layout_is_not_taken_for_done(tmp_path: Path) -> None:
    def doubled(x: np.ndarray) -> np.ndarray:
        return 2 * x[:, 0]

    def read() -> np.ndarray:
        return np.concatenate([np.load(tmp_path / "out" / f"part-{part:05}.npy") for part in range(2)])

    where, chunks = tmp_path / "out", (50, 3)
    dt.predict_to(where, doubled, da.from_array(X, chunks=chunks))
    with pytest.raises(ValueError, match=r"predictions of something else \(token .* The token says how"):
        dt.predict_to(where, doubled, da.from_array(X + 1, chunks=chunks))
    for x in (X + 1, X + 1, X):
        assert dt.predict_to(where, doubled, da.from_array(x, chunks=chunks), overwrite=True).num_written == 2
        np.testing.assert_allclose(read(), 2 * x[:, 0])


def test_rows_of_files_that_are_listed_again_are_the_same(tmp_path: Path) -> None:
    for number in range(3):
        np.full(4, number, np.uint8).tofile(tmp_path / f"{number}.bin")

    def decode(content: bytes) -> np.ndarray:
        return np.frombuffer(content, np.uint8)

    def predict_to() -> dt.PredictedFiles:
        return dt.predict_to(tmp_path / "out", summed, dt.files(tmp_path / "*.bin", decode=decode))

    def summed(x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1)

    assert predict_to().num_written == 3
    (tmp_path / "out" / "part-00001.npy").unlink()
    assert predict_to().num_written == 1
    os.utime(tmp_path / "0.bin", (1, 1))
    with pytest.raises(ValueError, match=r"predictions of something else \(token"):
        predict_to()


def test_inputs_that_have_changed_places_are_not_taken_for_done(tmp_path: Path) -> None:
    def apart(*, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left - right

    one, other = (da.from_array(X[:, column], chunks=50) for column in (0, 1))
    dt.predict_to(tmp_path / "out", apart, {"left": one, "right": other})
    assert dt.predict_to(tmp_path / "out", apart, {"left": one, "right": other}).num_written == 0
    with pytest.raises(ValueError, match="predictions of something else"):
        dt.predict_to(tmp_path / "out", apart, {"right": one, "left": other})


def test_a_path_is_checked_first(tmp_path: Path, regression: LinearRegression) -> None:
    for path, error in ((3, TypeError), (None, TypeError), ("", ValueError), (" ", ValueError), ("a\0b", ValueError)):
        with pytest.raises(error, match="pass the path or URL of a folder"):
            dt.predict_to(path, regression, X)  # type: ignore[arg-type]


def test_a_relative_path_is_below_the_working_directory_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def moved(x: np.ndarray) -> np.ndarray:
        os.chdir(tmp_path / "elsewhere")  # where Dask workers may have been started
        return x[:, 0]

    result = dt.predict_to("out", moved, da.from_array(X, chunks=(50, 3)), meta=np.empty(0))
    assert (result.path, result.num_written) == (f"{tmp_path}/out", 2)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "part-00001.npy"), X[50:, 0])
    assert dt.predict_to("../out", moved, da.from_array(X, chunks=(50, 3)), meta=np.empty(0)).num_written == 0


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask, as it reads an index
def test_a_frame_is_written_as_parquet(tmp_path: Path, regression: LinearRegression) -> None:
    table = pd.DataFrame(X, columns=list("abc"), index=pd.RangeIndex(100, name="row"))
    named = LinearRegression().fit(table, Y)
    result = dt.predict_to(f"file://{tmp_path}/out", named, dd.from_pandas(table, npartitions=3), columns="y")
    assert (result.kind, result.num_rows, result.num_written) == ("parquet", 100, 3)
    read = dd.read_parquet(tmp_path / "out").compute(scheduler="threads")
    np.testing.assert_allclose(read.y, Y)
    assert (read.index.name, read.index.tolist()) == ("row", list(range(100)))


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask, as it reads an index
def test_a_few_columns_of_parquet_are_written_partition_by_partition(
    tmp_path: Path, regression: LinearRegression
) -> None:
    """Dask would read several files of few columns in one task."""
    wide = pd.DataFrame(X, columns=list("abc")).assign(**{f"w{number}": 1.0 for number in range(20)})
    dd.from_pandas(wide, npartitions=5).to_parquet(tmp_path / "in", compute_kwargs={"scheduler": "sync"})
    frame = dd.read_parquet(tmp_path / "in")
    wanted, named = regression.predict(X), LinearRegression().fit(wide[["a", "b", "c"]], Y)
    for _ in range(2):
        found = dt.predict_to(tmp_path / "out", named, frame, features=["a", "b", "c"], progress=False)
        assert (found.num_parts, found.num_rows) == (5, len(X))
    made = dd.read_parquet(tmp_path / "out").compute(scheduler="sync")
    np.testing.assert_allclose(made["prediction"], wanted)


def test_a_result_survives_pickling() -> None:
    result = dt.PredictedFiles(path="a", kind="npy", num_parts=1, num_rows=2, num_written=1)
    assert pickle.loads(pickle.dumps(result)) == result


@pytest.mark.parametrize(
    ("lazy", "names"),
    [
        (da.zeros(3), None),
        ((da.zeros(3), da.zeros(3)), ["output_0", "output_1"]),
        ({"a": da.zeros(3), "b": da.zeros(3)}, ["a", "b"]),
        ({"a": da.zeros(3), "b": [da.zeros(3), da.zeros(3)]}, ["output_0", "output_1", "output_2"]),
    ],
)
def test_outputs_have_names_in_a_file(lazy: Any, names: list[str] | None) -> None:
    assert to_files.names_of(lazy) == names


def test_several_outputs_are_files_of_their_own_names(tmp_path: Path) -> None:
    result = dt.predict_to(
        tmp_path / "out", lambda x: {"sum": x.sum(1), "file": x[:, 0]}, da.from_array(X, chunks=(60, 3))
    )
    assert (result.kind, result.num_parts, result.num_rows) == ("npz", 2, 100)
    with np.load(tmp_path / "out" / "part-00001.npz") as part:
        np.testing.assert_allclose(part["sum"], Y[60:])
        np.testing.assert_allclose(part["file"], X[60:, 0])


@pytest.mark.parametrize(
    ("function", "x", "told"),
    [
        (lambda x: np.zeros(len(x)), pd.DataFrame(X), "would be a Zarr array, and a frame's predictions are Parquet"),
        (
            lambda x: (x[:, 0], x[:, 1]),
            da.from_array(X, chunks=(60, 3)),
            "one Zarr array, and the model makes 2 of each row",
        ),
        (
            lambda x: x[:, 0],
            da.from_array(X, chunks=((30, 20, 50), 3)),
            r"cut evenly, and the rows are cut into 30, 20, 50\.",
        ),
        (lambda x: x[:, 0], da.from_array(X, chunks=((30, 70), 3)), "cut into 30, 70"),
        (lambda x: np.array([object()] * len(x)), da.from_array(X, chunks=(60, 3)), "The model makes objects"),
    ],
)
def test_what_is_no_zarr_array(tmp_path: Path, function: Any, x: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        dt.predict_to(tmp_path / "out.zarr", function, x)
    assert not (tmp_path / "out.zarr").exists()
