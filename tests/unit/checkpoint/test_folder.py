"""Checkpoints are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_train.checkpoint.folder import COMPLETE, CheckpointFolder
from dask_train.errors import CheckpointError


def writes(text: str):
    def write(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "weights").write_text(text)
        (folder / "inner" / "more").write_text(f"more {text}")

    return write


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    kept = CheckpointFolder(str(tmp_path / "run") if request.param == "local" else "memory://run")
    yield kept
    if request.param == "memory":
        import fsspec

        fsspec.filesystem("memory").rm("/run", recursive=True)


def test_what_is_saved_is_loaded(folder, tmp_path):
    folder.save(writes("first"), tmp_path / "scratch")
    loaded = folder.load(tmp_path / "scratch")
    assert {file.relative_to(loaded).as_posix(): file.read_text() for file in loaded.rglob("*") if file.is_file()} == {
        "weights": "first",
        "inner/more": "more first",
    }
    for text in ("second", "third", "fourth"):
        where = folder.save(writes(text), tmp_path / "scratch")
    assert where.endswith("/00000003")
    assert (folder.load(tmp_path / "other") / "weights").read_text() == "fourth"


def test_there_is_none_at_first(tmp_path):
    assert CheckpointFolder(str(tmp_path / "none")).load(tmp_path) is None


def test_a_torn_one_is_never_loaded_and_removed_by_the_next(tmp_path):
    kept = CheckpointFolder(str(tmp_path / "run"))
    kept.save(writes("whole"), tmp_path / "scratch")
    torn = tmp_path / "run" / "00000001"
    torn.mkdir()
    (torn / "weights").write_text("torn")
    assert (kept.load(tmp_path / "scratch") / "weights").read_text() == "whole"
    assert kept.save(writes("next"), tmp_path / "scratch").endswith("/00000002")
    assert sorted(entry.name for entry in (tmp_path / "run").iterdir()) == ["00000000", "00000002"]
    assert (tmp_path / "run" / "00000002" / COMPLETE).read_text() == "2"


def test_the_last_two_are_kept(tmp_path):
    kept = CheckpointFolder(str(tmp_path / "run"))
    for number in range(4):
        kept.save(writes(str(number)), tmp_path / "scratch")
    assert sorted(entry.name for entry in (tmp_path / "run").iterdir()) == ["00000002", "00000003"]


def test_what_cannot_be_kept(tmp_path):
    with pytest.raises(CheckpointError, match="has written no file"):
        CheckpointFolder(str(tmp_path)).save(lambda folder: None, tmp_path / "scratch")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"can't be written at .*/file/run"):
        CheckpointFolder(str(tmp_path / "file" / "run")).save(writes("x"), tmp_path / "scratch")
    with pytest.raises(CheckpointError, match="can't be read at nosuch://bucket: ValueError"):
        CheckpointFolder("nosuch://bucket").load(tmp_path)
