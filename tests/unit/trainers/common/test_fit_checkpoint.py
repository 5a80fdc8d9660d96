"""What a checkpoint of ``fit`` holds comes back as it was, and what is none is refused in words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dask_train.checkpoint.stored import store, stored
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.trainers.common.fit_checkpoint import FORMAT, FitCheckpoint

STRETCH = BatchRange.of([0] * len(dataclasses.fields(BatchRange)))


def checkpoint(**more):
    given = {
        "run": "run-1",
        "order": {"num_rows": 10, "shuffle": True, "seed": 2**63},
        "configuration": {"optimizer": {"name": "adam"}},
        "epoch": 2,
        "batch": 3,
        "steps": 13,
        "shared": {"config": {"depth": 3}, "weights": [np.arange(6.0).reshape(2, 3)], "rates": [0.5, None]},
        "history": {"loss": [1.0, float("nan")]},
        "epochs": [0, 1],
        "read": [("run-0", 4, {0: [STRETCH], 1: []})],
        "own": [{"seeds": [np.ones(2)]}, {"seeds": []}],
    }
    return FitCheckpoint(**{**given, **more})


def test_it_comes_back_as_it_was(tmp_path):
    written = checkpoint()
    written.write(tmp_path)
    read = FitCheckpoint.load(tmp_path)
    for name in ("run", "order", "configuration", "epoch", "batch", "steps", "epochs"):
        assert getattr(read, name) == getattr(written, name), name
    assert read.read == written.read
    np.testing.assert_equal([read.history, read.shared, read.own], [written.history, written.shared, written.own])


def test_what_can_not_be_stored_is_refused(tmp_path):
    with pytest.raises(TypeError):
        checkpoint(history={"loss": [object()]}).write(tmp_path)


def test_files_of_others_are_no_checkpoint(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"which has the files weights\.bin, is none of dt\.fit"):
        FitCheckpoint.load(tmp_path)


@pytest.mark.parametrize(("version", "what"), [(FORMAT + 1, "A later"), (FORMAT - 1, "An earlier")])
def test_another_format_is_refused(tmp_path, version, what):
    for name in ("now", "then"):
        (tmp_path / name).mkdir()
    checkpoint().write(tmp_path / "now")
    content = stored(tmp_path / "now")
    store(tmp_path / "then", {**content, "format": version})
    with pytest.raises(CheckpointError, match=f"has format {version} of dt.fit, and .* reads {FORMAT}") as raised:
        FitCheckpoint.load(tmp_path / "then")
    assert f"{what} version has written it" in str(raised.value)
