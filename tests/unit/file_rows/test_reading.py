"""Files that can't be read are told in words, without what logs in to their store."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dask_train.errors import DataError
from dask_train.file_rows.reading import contents_of


def test_a_file_of_a_store_that_refuses_is_told_in_words(monkeypatch):
    def refused(self, path, *args, **settings):
        raise PermissionError("secret-value has expired")

    fs = fsspec.filesystem("memory", login="secret-value")
    monkeypatch.setattr(MemoryFileSystem, "cat_file", refused)
    with pytest.raises(DataError) as told:
        contents_of(fs, ["/a/1.jpg"])
    assert told.value.what.startswith("File 'memory:///a/1.jpg' can't be read: PermissionError: ")
    assert told.value.cause.startswith("The store has refused the credentials")
    assert "storage_options=" in told.value.change
    assert "secret-value" not in str(told.value) + str(told.value.__cause__)


def test_a_local_file_that_is_gone_is_told_by_its_path(tmp_path):
    with pytest.raises(DataError, match=r"File '/.*/1\.jpg' can't be read: FileNotFoundError.* gone since"):
        contents_of(fsspec.filesystem("file"), [f"{tmp_path}/1.jpg"])
