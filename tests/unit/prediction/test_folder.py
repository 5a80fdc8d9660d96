"""Parts of predictions: whole or not there, and known again."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import numpy as np
import pytest

from dask_train.prediction.folder import Folder, put

RECORD = {"model": "a", "data": {"rows": [2, 3]}}


@pytest.mark.parametrize("where", ["folder", "memory://predictions-of-a-test"])
def test_what_is_complete_is_known_again(tmp_path: Path, where: str) -> None:
    folder = Folder(where if "://" in where else str(tmp_path / where))
    assert folder.claim(RECORD, overwrite=False)
    assert folder.done() == {}
    folder.write("npy", 1, 0, None, (np.arange(3),))
    assert not folder.claim(RECORD, overwrite=False)
    assert folder.done() == {1: 3}
    with pytest.raises(ValueError, match=r'something else \(model "a" there, "b" here\).*overwrite=True'):
        folder.claim({**RECORD, "model": "b"}, overwrite=False)
    assert folder.claim({**RECORD, "model": "b"}, overwrite=True)
    assert folder.done() == {}


def test_a_part_that_is_being_written_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(str(tmp_path))
    folder.claim(RECORD, overwrite=False)
    seen = []
    replace = os.replace

    def look_and_replace(temporary: str, path: str) -> None:
        seen.append(folder.done())
        replace(temporary, path)

    monkeypatch.setattr(os, "replace", look_and_replace)
    folder.write("npy", 1, 0, None, (np.arange(3),))
    assert seen == [{}, {}]  # the part's file, then the one that tells of it
    assert folder.done() == {1: 3}


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_are_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match="has files, and no record of predictions"):
        Folder(str(tmp_path)).claim(RECORD, overwrite=overwrite)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_file_that_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        put(fsspec.filesystem("file"), str(tmp_path / "part"), b"data")
    assert os.listdir(tmp_path) == []
