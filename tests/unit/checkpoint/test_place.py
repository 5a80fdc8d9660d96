"""Where checkpoints lie, opened."""

from __future__ import annotations

import fsspec

from dask_train.checkpoint.place import CheckpointPlace


def test_the_file_system_gets_the_options():
    system, root = CheckpointPlace(url="file:///there/", storage_options={"auto_mkdir": True}).opened()
    assert root == "/there"
    assert system is fsspec.filesystem("file", auto_mkdir=True)
