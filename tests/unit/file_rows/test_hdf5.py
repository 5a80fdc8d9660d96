"""Data sets of HDF5 files are Dask arrays whose blocks are read where they are computed."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import dask_train as dt
from dask_train.errors import DataError
from dask_train.file_rows import array_files

h5py = pytest.importorskip("h5py")

X, Y = np.arange(60, dtype=np.float32).reshape(20, 3), np.arange(20) % 3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Two files, whose rows are read a few at a time."""
    monkeypatch.setattr(array_files, "BLOCK_BYTES", 5 * X[0].nbytes)
    for number, rows in enumerate((slice(0, 13), slice(13, 20))):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("x", data=X[rows], chunks=(4, 3), compression="gzip")
            file["labels/y"] = Y[rows]
            file["text"] = ["a"] * len(Y[rows])
            file["one"] = 3
    return tmp_path


def test_rows_of_several_files_follow_each_other(folder):
    x, y = dt.hdf5(folder / "*.h5", "x", "labels/y")
    assert x.chunks[0] == (4, 4, 4, 1, 4, 3), "whole chunks of the file"
    assert (x.dtype, y.dtype) == (X.dtype, Y.dtype)
    x, y = cloudpickle.loads(cloudpickle.dumps((x, y)))
    np.testing.assert_array_equal(x.compute(scheduler="threads"), X)
    np.testing.assert_array_equal(y.compute(scheduler="threads"), Y)
    assert dt.hdf5(folder / "*.h5", "x").name == dt.hdf5(folder / "*.h5", "x").name


def test_a_file_that_was_written_anew_is_told(folder):
    x = dt.hdf5(folder / "0.h5", "x")
    with h5py.File(folder / "0.h5", "a") as file:
        file["more"] = np.zeros(1000)
    with pytest.raises(DataError, match=r"0\.h5' is another one than when its rows were listed"):
        x.compute(scheduler="synchronous")
    (folder / "0.h5").unlink()
    with pytest.raises(DataError, match=r"File '.*0\.h5' can't be read: FileNotFoundError.* gone since"):
        x.compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"No data set is named\. Pass the names"),
        (["z"], r"0\.h5' has no data set 'z'; it has 'labels/y', 'one', 'text', 'x'"),
        (["labels"], "has no data set 'labels'; it has 'labels/y'"),
        (["text"], "'text' of '.*' is object; rows are arrays of numbers"),
        (["one"], "'one' of '.*' is one number; rows lie along the first axis"),
    ],
)
def test_what_has_no_rows_is_refused(folder, names, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dt.hdf5(folder / "*.h5", *names)


def test_files_that_do_not_go_together_are_refused(folder):
    with h5py.File(folder / "1.h5", "a") as file:
        file["short"] = np.zeros(3)
        del file["x"]
        file["x"] = np.zeros((7, 3))
    with pytest.raises(ValueError, match=r"Rows of 'x' of '.*1\.h5' are float64 \(3,\), and those of 'x' of '.*0\.h5'"):
        dt.hdf5(folder / "*.h5", "x")
    with pytest.raises(ValueError, match="have different numbers of rows: 'x' has 7, 'short' has 3"):
        dt.hdf5(folder / "1.h5", "x", "short")


def test_what_is_no_hdf5_is_told(folder):
    (folder / "0.h5").write_bytes(b"text")
    with pytest.raises(DataError, match=r"File '.*0\.h5' can't be read: OSError"):
        dt.hdf5(folder / "*.h5", "x")
