"""Arrays in files are Dask arrays whose blocks are read where they are computed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest

import dask_train as dt
from dask_train.errors import DataError
from dask_train.file_rows import array_files

X = np.arange(60, dtype=np.int16).reshape(20, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Two files, whose rows are read five at a time."""
    monkeypatch.setattr(array_files, "BLOCK_BYTES", 5 * X[0].nbytes)
    for number, rows in enumerate((X[:13], X[13:])):
        np.save(tmp_path / f"{number}.npy", rows)
        rows.tofile(tmp_path / f"{number}.bin")
    return tmp_path


def test_rows_of_several_files_follow_each_other(folder):
    for rows in (dt.npy(folder / "*.npy"), dt.memmap(folder / "*.bin", dtype="int16", row_shape=(3,))):
        assert (rows.chunks[0], rows.dtype) == ((5, 5, 3, 5, 2), X.dtype)
        np.testing.assert_array_equal(rows.compute(scheduler="threads"), X)
    flat = dt.memmap(folder / "*.bin", dtype=np.int16)
    np.testing.assert_array_equal(flat.compute(scheduler="synchronous"), X.ravel())


@pytest.mark.parametrize("row_shape", [3, np.int64(3), np.array([3]), [3]], ids=type)
def test_a_whole_number_is_the_shape_of_a_row(folder, row_shape):
    rows = dt.memmap(folder / "*.bin", dtype="int16", row_shape=row_shape)
    np.testing.assert_array_equal(rows.compute(scheduler="synchronous"), X)


def test_files_of_a_list_follow_each_other_in_its_order(folder):
    first, second = folder / "0.npy", folder / "1.npy"
    rows = dt.npy([second, first, second]).compute(scheduler="synchronous")
    np.testing.assert_array_equal(rows, np.concatenate([X[13:], X[:13], X[13:]]))


def test_files_of_a_store_are_read_there(folder):
    fsspec.filesystem("memory").pipe_file(f"{folder}/x.npy", (folder / "0.npy").read_bytes())
    np.testing.assert_array_equal(dt.npy(f"memory://{folder}/x.npy").compute(scheduler="synchronous"), X[:13])


def test_files_of_one_path_in_two_archives_are_not_mistaken_for_each_other(folder):
    """Dask computes what has one key once, for all who ask for it."""
    for name in "01":
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr("x.bin", bytes([int(name)] * 6))
    first, again, second = (dt.memmap(f"zip://x.bin::{folder}/{name}.zip", dtype="uint8") for name in "001")
    assert first.name == again.name != second.name
    assert second.compute(scheduler="synchronous").tolist() == [1] * 6


def test_files_of_one_path_on_two_servers_are_not_mistaken_for_each_other(folder):
    fsspec.filesystem("memory").pipe_file(f"{folder}/x.npy", (folder / "0.npy").read_bytes())
    names = [dt.npy(f"memory://{folder}/x.npy", storage_options={"host": host}).name for host in ("a", "b", "a")]
    assert names[0] == names[2] != names[1]


@pytest.mark.parametrize("tag", ["ETag", "CRC", "sha", "Last-Modified", "modificationTime", "modify"])
def test_a_file_that_was_written_anew_is_known_by_what_its_store_tells(tag):
    def stamp(value):
        return array_files.stamp_of(SimpleNamespace(info=lambda _: {"size": 3, "mimetype": "x", tag: value}), "a")

    assert stamp("one") == stamp("one") != stamp("another")


def test_what_has_no_rows_of_numbers_is_refused(folder):
    np.save(folder / "fortran.npy", np.asfortranarray(X))
    np.save(folder / "text.npy", np.array(["a"]))
    np.save(folder / "one.npy", np.array(1))
    for name, message in (
        ("fortran.npy", r"fortran\.npy' holds its columns one after the other"),
        ("text.npy", r"text\.npy' is <U1; rows are arrays of numbers"),
        ("one.npy", r"one\.npy' is one number; rows lie along"),
        ("0.bin", r"0\.bin' is no \.npy file: .*Bare numbers are read by dt\.memmap"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            dt.npy(folder / name)
    with pytest.raises(ValueError, match=r"has 78 bytes, which are no whole rows of 8 bytes: int16 \(4,\)"):
        dt.memmap(folder / "0.bin", dtype="int16", row_shape=(4,))
    with pytest.raises(ValueError, match=r"row_shape=\(0,\) of int16 makes rows without numbers"):
        dt.memmap(folder / "0.bin", dtype="int16", row_shape=(0,))
    with pytest.raises(ValueError, match="row_shape=0 of int16 makes rows without numbers"):
        dt.memmap(folder / "0.bin", dtype="int16", row_shape=0)


def test_a_file_that_ends_early_is_told(folder):
    path = folder / "0.npy"
    path.write_bytes(path.read_bytes()[:-7])
    rows = dt.npy(path)
    with pytest.raises(DataError, match=r"0\.npy' ends before row 13\. The file is damaged"):
        rows.compute(scheduler="synchronous")
