"""A file is there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dask_train.report.whole_file import write_whole


def test_a_file_is_made_and_replaced(tmp_path):
    path = tmp_path / "report.html"
    assert write_whole(str(path), b"old") == path
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_file_may_be_below_the_users_own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_whole("~/page.html", b"page") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_bytes() == b"page"


def test_others_may_read_it_where_the_mask_says_so(tmp_path):
    mask = os.umask(0o022)
    try:
        path = write_whole(tmp_path / "report.html", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*none does not exist\. Make it"):
        write_whole(tmp_path / "none" / "report.html", b"")


def test_what_was_there_stays_where_writing_fails(tmp_path, monkeypatch):
    path = write_whole(tmp_path / "report.html", b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("the disk is gone")))
    with pytest.raises(OSError, match="the disk is gone"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["report.html"]
