"""Files are found by wildcards, in a fixed order, with their sizes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dask_train.file_rows.listing import listed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/2.txt", "a/10.txt", "a/9.txt", "a/deep/1.txt", "a/[x].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(found: dict[str, int], folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in found]


def test_files_are_sorted_and_folders_are_left_out(folder):
    _, found = listed(f"{folder}/*/*")
    assert names(found, folder) == ["a/10.txt", "a/9.txt", "a/[x].txt", "b/2.txt"]
    assert found[f"{folder}/b/2.txt"] == len("b/2.txt")
    assert names(listed(f"{folder}/**/1.txt")[1], folder) == ["a/deep/1.txt"]


def test_several_paths_count_each_file_once(folder):
    _, found = listed([folder / "b" / "2.txt", f"{folder}/*/2.txt"])
    assert names(found, folder) == ["b/2.txt"]


def test_a_relative_path_is_made_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert list(listed("b/*.txt")[1]) == [f"{folder}/b/2.txt"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (3, "paths is a int; pass a path or URL"),
        ([3], "paths is a list; pass a path or URL"),
        ([], "paths is an empty list"),
        (["s3://bucket/a", "b"], "paths are of several file systems"),
        ("tar://*.jpg::/data/pictures.tar", r"'tar://.*' names members of one archive, which several threads can't"),
        ("/nowhere/*.jpg", r"There is no file '/nowhere/\*\.jpg'"),
    ],
)
def test_what_names_no_files_is_refused(paths, message):
    with pytest.raises((TypeError, ValueError), match=message):
        listed(paths)


def test_a_folder_is_told_how_to_name_its_files(folder):
    with pytest.raises(ValueError, match="It is a folder: name its files"):
        listed(folder / "a")


def test_a_store_that_refuses_to_tell_is_told_in_words(monkeypatch):
    def refused(self, path, **settings):
        raise PermissionError(f"no access to {path} with secret-value")

    monkeypatch.setattr(MemoryFileSystem, "info", refused)
    monkeypatch.setattr(MemoryFileSystem, "glob", refused)
    message = r"paths='memory.*can't be reached: PermissionError.*refused the credentials"
    for path in ("memory://a/1.jpg", "memory://a/*.jpg"):
        with pytest.raises(ValueError, match=message) as told:
            listed(path, {"token": "secret-value"})
        assert "secret-value" not in str(told.value) + str(told.value.__cause__)
