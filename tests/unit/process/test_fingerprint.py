"""What a new process would find: a template serves for as long as it found the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dask_train.process.fingerprint import Fingerprint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """On the import path, with a package, a module and the version of the package."""
    found = tmp_path / "path"
    for name in ("package/__init__.py", "module.py", "package-1.0.dist-info/METADATA", "data/table.csv", "notes.txt"):
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).touch()
    monkeypatch.syspath_prepend(str(found))
    return found


def later(file: Path) -> None:
    """As if it had been written anew."""
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: later(folder / "module.py"),
        lambda folder: (folder / "module.py").unlink(),
        lambda folder: (folder / "new.so").touch(),
        lambda folder: (folder / "more.pth").touch(),
        lambda folder: (folder / "package-1.0.dist-info").rename(folder / "package-1.1.dist-info"),
        lambda folder: (folder / "data" / "__init__.py").touch(),
    ],
)
def test_what_can_be_imported_counts(folder, change):
    before = Fingerprint.now()
    assert Fingerprint.now() == before
    change(folder)
    assert Fingerprint.now() != before


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: later(folder / "notes.txt"),
        lambda folder: (folder / "data" / "more.csv").touch(),
        lambda folder: later(folder / "package" / "__init__.py"),
        lambda folder: (folder / "no-identifier").mkdir(),
    ],
)
def test_all_else_does_not(folder, change):
    before = Fingerprint.now()
    change(folder)
    assert Fingerprint.now() == before


def test_of_other_modules_than_those_that_were_imported_only_versions_count(folder):
    own, before = frozenset({"package"}), Fingerprint.now()
    later(folder / "module.py")
    assert Fingerprint.now().only(own) == before.only(own)
    assert Fingerprint.now().only(own | {"module"}) != before.only(own | {"module"})
    (folder / "other-2.0.dist-info").mkdir()
    assert Fingerprint.now().only(own) != before.only(own), "a package that is installed may change any import"


def test_the_path_itself_counts(folder, monkeypatch):
    before = Fingerprint.now()
    monkeypatch.syspath_prepend(str(folder / "data"))
    assert Fingerprint.now() != before


def test_a_zip_file_counts_by_its_time(tmp_path, monkeypatch):
    archive = tmp_path / "code.zip"
    archive.touch()
    monkeypatch.syspath_prepend(str(archive))
    before = Fingerprint.now()
    later(archive)
    assert Fingerprint.now() != before
    archive.unlink()
    Fingerprint.now()  # an entry that is gone has nothing


def test_so_do_the_folder_and_the_mask(tmp_path, monkeypatch):
    before = Fingerprint.now()
    mask = os.umask(0o077)
    try:
        assert (Fingerprint.now() == before) is (mask == 0o077)
    finally:
        os.umask(mask)
    monkeypatch.chdir(tmp_path)
    assert Fingerprint.now() != before
