"""What a model process is let start with."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.errors import PredictionError
from dask_train.predicting import model_pool
from dask_train.predicting.model_pool import FRAMEWORK_BYTES, FRAMEWORK_BYTES_ELSE, SHARED, _needed
from dask_train.predicting.server.runners import imports_of
from dask_train.predicting.server.values import ModelParts
from dask_train.process.templates import name_of
from dask_train.worker.room import Room

MIB = 1 << 20
ARRAYS = (np.zeros(MIB, np.uint8),)


@pytest.mark.parametrize(
    ("kind", "environment", "framework"),
    [("torch", {}, FRAMEWORK_BYTES["torch"]), ("keras", {"KERAS_BACKEND": "tensorflow"}, FRAMEWORK_BYTES_ELSE)],
)
def test_a_template_that_is_there_has_taken_its_part(kind, environment, framework):
    parts = ModelParts(
        kind=kind, name="m", token="t", header=b"", arrays=ARRAYS, opened_bytes=2 * MIB, environment=environment  # noqa: S106
    )  # fmt: skip
    template = name_of(imports_of(parts))
    assert _needed(parts, {}) == framework + 3 * MIB
    assert _needed(parts, {"another": 999 * MIB}) == framework + 3 * MIB
    assert _needed(parts, {template: 999 * MIB}) == framework - int(SHARED * framework) + 3 * MIB, "not more than that"
    assert _needed(parts, {template: 10 * MIB}) == framework - 7 * MIB, "it is just being made"


def test_memory_limits_that_count(monkeypatch):
    parts = ModelParts(kind="torch", name="m", token="t", header=b"", arrays=ARRAYS, opened_bytes=0)  # noqa: S106
    found = Room(bytes=10 * MIB, left=None)
    monkeypatch.setattr(model_pool, "room", lambda *_: found)
    pool = model_pool.ModelProcesses(SimpleNamespace(address="tcp://h:1"))
    pool._seats["t"] = model_pool._Seat("t")
    with pytest.raises(PredictionError, match=r"has 10\.00 MiB left; .* templates .* set train\.memory\.limit"):
        pool._check_room(parts, within_dask=True)
    pool._seats["t"] = model_pool._Seat("t")  # it made room
    pool._check_room(parts, within_dask=False)  # of a host with memory to spare
    found = Room(bytes=10 * MIB, left=20 * MIB)
    with pytest.raises(PredictionError, match=r"has 20\.00 MiB left; .* is what is left of its container's limit"):
        pool._check_room(parts, within_dask=False)
