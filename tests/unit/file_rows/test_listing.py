"""Files are found by wildcards, in a fixed order, with their sizes."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dask_train.file_rows.listing import listed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/2.txt", "a/10.txt", "a/9.txt", "a/deep/1.txt", "a/[x].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(paths: object, folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in listed(paths)[1]]


def test_files_are_sorted_and_folders_are_left_out(folder):
    assert names(f"{folder}/*/*", folder) == ["a/10.txt", "a/9.txt", "a/[x].txt", "b/2.txt"]
    assert listed(f"{folder}/*/*")[2] == [len("a/10.txt"), len("a/9.txt"), len("a/[x].txt"), len("b/2.txt")]
    assert names(f"{folder}/**/1.txt", folder) == ["a/deep/1.txt"]


def test_a_list_keeps_its_order_and_what_stands_there_twice(folder):
    paths = [folder / "b" / "2.txt", f"{folder}/a/[0-9]*.txt", folder / "b" / "2.txt"]
    assert names(paths, folder) == ["b/2.txt", "a/10.txt", "a/9.txt", "b/2.txt"]
    assert names([f"{folder}/b/*"] * 2, folder) == ["b/2.txt", "b/2.txt"]


def test_a_file_that_two_wildcards_find_is_refused(folder):
    with pytest.raises(ValueError, match=r"the file '.*/b/2\.txt' twice: '.*/b/2\.txt' and '.*/\*/2\.txt' both"):
        listed([folder / "b" / "2.txt", f"{folder}/*/2.txt"])


def test_files_of_several_archives_are_refused(folder):
    """Each archive is a file system, and all paths of a list are read from one."""
    for name in ("1.zip", "2.zip"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("x.txt", name)
            archive.writestr("y.txt", name)
    of_one = [f"zip://y.txt::{folder}/1.zip", f"zip://x.txt::{folder}/1.zip"]
    assert listed(of_one)[1] == ("y.txt", "x.txt")
    with pytest.raises(ValueError, match=r"several file systems; pass those of one\. A server, .* and a ZIP"):
        listed([*of_one, f"zip://x.txt::{folder}/2.zip"])


def test_brackets_in_a_files_own_name_are_no_wildcard(folder):
    (folder / "a" / "x.txt").touch()
    assert names(folder / "a" / "[x].txt", folder) == ["a/[x].txt"]
    (folder / "a" / "[x].txt").unlink()
    assert names(folder / "a" / "[x].txt", folder) == ["a/x.txt"]


def test_a_relative_path_is_made_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert listed("b/*.txt")[1] == (f"{folder}/b/2.txt",)


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


def test_files_that_have_come_since_are_found(monkeypatch):
    """The packages of stores keep what they have listed."""
    kept: dict[str, dict] = {}
    find_anew = MemoryFileSystem.find

    def find(self, path, **settings):
        if path not in kept:
            kept[path] = find_anew(self, path, **settings)
        return kept[path]

    monkeypatch.setattr(MemoryFileSystem, "find", find)
    monkeypatch.setattr(MemoryFileSystem, "invalidate_cache", lambda self, path=None: kept.clear())
    store = fsspec.filesystem("memory")
    for number in (1, 2):
        store.pipe_file(f"/of-today/{number}.txt", b"x" * number)
        assert listed("memory://of-today/*.txt")[2] == [1, 2][:number]
    store.rm("/of-today", recursive=True)


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
