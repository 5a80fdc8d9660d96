"""Wildcards find what is linked, and end where links lead back."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from dask_train.file_rows.listing import listed
from dask_train.file_rows.local_wildcards import found_here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train/a/1.txt", "train/.b/2.txt", "train/a/.3.txt", "train/a/deep/4.txt", "train/[x]/5.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "train"


@pytest.fixture
def linked(folder: Path) -> Path:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "6.txt").write_text("elsewhere")
    (folder / "c").symlink_to(elsewhere)
    (folder / "a" / "7.txt").symlink_to("1.txt")
    return folder


def names(pattern: str, folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in listed(f"{folder}/{pattern}")[1]]


@pytest.mark.parametrize(
    "pattern",
    ["*", "*/*", "*/?.txt", "a/[!2].txt", "**", "**/*.txt", "*/**/4.txt", "[[]x]/*", "none/*", "*/[]", "a*/*"],
)
def test_without_links_it_finds_what_fsspec_finds(folder, pattern):
    fs = fsspec.filesystem("file")
    found, others = found_here(fs, f"{folder}/{pattern}"), fs.glob(f"{folder}/{pattern}", detail=True)
    others.pop(str(folder), None)  # of two stars, which no file is
    kept = ("name", "type", "size", "mtime")
    assert {path: [info[key] for key in kept] for path, info in found.items()} == {
        path: [info[key] for key in kept] for path, info in others.items()
    }


def test_links_to_files_and_folders_are_found(linked):
    assert names("*/?.txt", linked) == [".b/2.txt", "[x]/5.txt", "a/1.txt", "a/7.txt", "c/6.txt"]
    assert listed(f"{linked}/[ac]/?.txt")[2] == [len("train/a/1.txt")] * 2 + [len("elsewhere")]
    assert names("**/?.txt", linked) == [".b/2.txt", "[x]/5.txt", "a/1.txt", "a/7.txt", "a/deep/4.txt", "c/6.txt"]


def test_two_stars_enter_each_folder_once(linked):
    before = names("**/*.txt", linked)
    (linked / "a" / "up").symlink_to("..")
    (linked / "again").symlink_to("a")
    (linked / "c" / "back").symlink_to(linked)
    assert names("**/*.txt", linked) == before
    assert "again/1.txt" in names("*/1.txt", linked)


@pytest.mark.parametrize("target", ["nowhere", "8.txt"])
def test_a_link_without_a_target_is_refused(linked, target):
    (linked / "a" / "8.txt").symlink_to(target)
    for pattern in ("*/*.txt", "**/*.txt"):
        with pytest.raises(ValueError, match=rf"/a/8\.txt' is a link to '{target}', which is not there"):
            names(pattern, linked)
    assert "a/1.txt" in names("*/[!8].txt", linked)


def test_a_linked_folder_that_is_gone_is_refused(linked):
    """Its class would be missing, and the numbers of others would move."""
    (linked.parent / "elsewhere").rename(linked.parent / "moved")
    with pytest.raises(ValueError, match=r"/train/c' is a link to '.*/elsewhere', which is not there"):
        names("*/*.txt", linked)


def test_a_folder_that_cant_be_listed_is_left_out(linked, monkeypatch):
    scandir = os.scandir

    def refused(path):
        if path.endswith("/a/"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert names("*/*.txt", linked) == [".b/2.txt", "[x]/5.txt", "c/6.txt"]
