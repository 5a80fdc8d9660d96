"""What a checkpoint of ``fit`` holds comes back as it was, and what is none is refused in words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dask_train.checkpoint.stored import store, stored
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.trainers.common.fit_checkpoint import FORMAT, CallbackState, FitCheckpoint

STRETCH = BatchRange.of([0] * len(dataclasses.fields(BatchRange)))


def checkpoint(**more):
    given = {
        "run": "run-1",
        "order": {"num_rows": 10, "shuffle": True, "seed": 2**63},
        "configuration": {"optimizer": {"name": "adam"}},
        "rates": [0.5, None],
        "epoch": 2,
        "batch": 3,
        "steps": 13,
        "shared": {"layers": 2, "config": {"depth": 3}},
        "arrays": [np.arange(6.0).reshape(2, 3)],
        "history": {"loss": [1.0, float("nan")]},
        "epochs": [0, 1],
        "callbacks": [CallbackState("Counting", b"pickled"), CallbackState("Locking", b"")],
        "read": [("run-0", 4, {0: [STRETCH], 1: []})],
        "own": [[np.ones(2)], []],
        "metrics": [np.zeros(1)],
        "steps_by_rank": {0: 7, 1: 6},
        "progress": [{0: (7, 1)}],
        "counted": {1: [np.ones(1)]},
    }
    return FitCheckpoint(**{**given, **more})


def test_it_comes_back_as_it_was(tmp_path):
    written = checkpoint()
    written.write(tmp_path)
    read = FitCheckpoint.load(tmp_path)
    for name in ("run", "order", "configuration", "shared", "rates", "epoch", "batch", "steps", "epochs", "callbacks"):
        assert getattr(read, name) == getattr(written, name), name
    assert read.read == written.read
    assert read.steps_by_rank == {0: 7, 1: 6}
    assert [{rank: tuple(told) for rank, told in each.items()} for each in read.progress] == [{0: (7, 1)}]
    np.testing.assert_equal(read.history, written.history)
    np.testing.assert_equal(read.arrays, written.arrays)
    np.testing.assert_equal([read.own, read.metrics, read.counted], [written.own, written.metrics, written.counted])


def test_what_can_not_be_stored_is_refused(tmp_path):
    with pytest.raises(TypeError):
        checkpoint(history={"loss": [object()]}).write(tmp_path)


def test_files_of_others_are_no_checkpoint(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"which has the files weights\.bin, is none of dt\.fit"):
        FitCheckpoint.load(tmp_path)


def test_a_later_format_is_refused(tmp_path):
    for name in ("now", "later"):
        (tmp_path / name).mkdir()
    checkpoint().write(tmp_path / "now")
    told = stored(tmp_path / "now")
    store(tmp_path / "later", {**told, "format": FORMAT + 1})
    with pytest.raises(CheckpointError, match=f"has format {FORMAT + 1} of dt.fit, and this dask-train reads up to"):
        FitCheckpoint.load(tmp_path / "later")
