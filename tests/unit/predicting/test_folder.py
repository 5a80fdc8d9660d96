"""Parts of predictions: whole or not there, and known again."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from dask_train.errors import PredictionError
from dask_train.predicting.folder import Folder, put

DATA = {"partitions": 3, "rows": [2, 3, 2], "outputs": [["<i8", []]]}
RECORD = {"kind": "npy", "model": "a", "data": DATA}
ZARR = {**RECORD, "kind": "zarr", "data": {**DATA, "rows": [2, 2, 1], "outputs": [["<i8", [3]]]}}


@pytest.mark.parametrize("where", ["folder", "memory://predictions-of-a-test"])
def test_what_is_complete_is_known_again(tmp_path: Path, where: str) -> None:
    folder = Folder(where if "://" in where else str(tmp_path / where))
    claimed = folder.claim(RECORD, overwrite=False)
    assert claimed.done("npy") == {}
    claimed.write("npy", 1, 0, None, (np.arange(3),))
    assert folder.claim(RECORD, overwrite=False) == claimed
    assert claimed.done("npy") == {1: 3}
    with pytest.raises(ValueError, match=r'something else \(model "a" there, "b" here\).*overwrite=True'):
        folder.claim({**RECORD, "model": "b"}, overwrite=False)
    for record in ({**RECORD, "model": "b"}, RECORD, RECORD):  # the last is of the same, and new nevertheless
        again = folder.claim(record, overwrite=True)
        assert again.done("npy") == {}
        again.write("npy", 1, 0, None, (np.arange(3),))


@pytest.mark.parametrize("record", [RECORD, ZARR], ids=["npy", "zarr"])
def test_what_it_has_not_written_is_never_removed(tmp_path: Path, record: dict[str, Any]) -> None:
    folder = Folder(str(tmp_path))
    claimed = folder.claim(record, overwrite=False)
    for number, rows in enumerate(record["data"]["rows"]):
        values = np.ones((rows, *record["data"]["outputs"][0][1]), "i8")
        claimed.write(record["kind"], number, 2 * number, None, (values,))
    theirs = ["notes.txt", "part-00099.npy", "plots/part-00000.npy", "_dask_train/mine", "c/9/0"]
    for name in theirs:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    left = tmp_path / f".part-00001.npy.{'0' * 32}.partial"
    left.touch()  # by a writer that was killed
    folder.claim({**record, "model": "b"}, overwrite=True)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found - {"_dask_train/record.json", "zarr.json"} == set(theirs)


def test_parts_of_a_call_that_was_overtaken_are_not_taken_for_those_of_the_next(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    first = folder.claim(RECORD, overwrite=False)
    second = folder.claim({**RECORD, "model": "b"}, overwrite=True)
    with pytest.raises(PredictionError, match="is being written by another call"):
        first.write("npy", 1, 0, None, (np.arange(3),))
    assert second.done("npy") == {}
    with pytest.raises(PredictionError, match="is not the folder that the client has made"):
        replace(second, path=str(tmp_path / "elsewhere")).write("npy", 1, 0, None, (np.arange(3),))


def test_a_part_whose_file_is_gone_is_not_complete(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path)).claim(RECORD, overwrite=False)
    folder.write("npy", 1, 0, None, (np.arange(3),))
    (tmp_path / "part-00001.npy").unlink()
    assert folder.done("npy") == {}
    zarr = Folder(str(tmp_path / "of-zarr"))
    first = zarr.claim(ZARR, overwrite=False)
    first.write("zarr", 1, 2, None, (np.ones((2, 3), "i8"),))
    (tmp_path / "of-zarr" / "zarr.json").unlink()
    assert zarr.claim(ZARR, overwrite=False).done("zarr") == {}


def test_a_part_that_is_being_written_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(str(tmp_path)).claim(RECORD, overwrite=False)
    seen = []
    replace = os.replace

    def look_and_replace(temporary: str, path: str) -> None:
        seen.append(folder.done("npy"))
        replace(temporary, path)

    monkeypatch.setattr(os, "replace", look_and_replace)
    folder.write("npy", 1, 0, None, (np.arange(3),))
    assert seen == [{}, {}]  # the part's file, then the one that tells of it
    assert folder.done("npy") == {1: 3}


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_are_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match="has files, and no record of predictions"):
        Folder(str(tmp_path)).claim(RECORD, overwrite=overwrite)
    with pytest.raises(ValueError, match="is a file"):
        Folder(str(tmp_path / "thesis.txt")).claim(RECORD, overwrite=overwrite)
    assert os.listdir(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize("path", ["/proc/no-such", "nosuch://bucket/a", "{}/file/below"])
def test_what_can_not_be_written_to_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"path='.*' can't be written to from here: \w+: .*this process and all Dask"):
        Folder(path.format(tmp_path)).claim(RECORD, overwrite=False)


def test_a_full_disk_is_told_with_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(str(tmp_path)).claim(RECORD, overwrite=False)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PredictionError, match=f"Part 1 can't be written to {tmp_path} on host .*No space left"):
        folder.write("npy", 1, 0, None, (np.arange(3),))
    assert sorted(os.listdir(tmp_path)) == ["_dask_train"]


def test_a_file_that_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        put(fsspec.filesystem("file"), str(tmp_path / "part"), b"data")
    assert os.listdir(tmp_path) == []
