"""What a model process is let start with."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.config import PredictLimits, TemplateSettings
from dask_train.errors import PredictionError
from dask_train.predicting import model_pool
from dask_train.predicting.model_pool import FRAMEWORK_BYTES, FRAMEWORK_BYTES_ELSE, SHARED, _needed
from dask_train.predicting.server.runners import imports_of
from dask_train.predicting.server.values import ModelParts
from dask_train.process.templates import name_of
from dask_train.worker.room import Room

MIB = 1 << 20
ARRAYS = (np.zeros(MIB, np.uint8),)


@pytest.mark.parametrize("imports", [(), ("fractions",)])
@pytest.mark.parametrize(
    ("kind", "environment", "framework"),
    [("torch", {}, FRAMEWORK_BYTES["torch"]), ("keras", {"KERAS_BACKEND": "tensorflow"}, FRAMEWORK_BYTES_ELSE)],
)
def test_a_template_that_is_there_has_taken_its_part(kind, environment, framework, imports):
    parts = ModelParts(
        kind=kind, name="m", token="t", header=b"", arrays=ARRAYS, opened_bytes=2 * MIB, environment=environment  # noqa: S106
    )  # fmt: skip
    settings = TemplateSettings(idle_s=60, imports=imports)
    template, needed = name_of(settings.imported(imports_of(parts))), partial(_needed, parts, settings)
    assert needed({}) == framework + 3 * MIB
    assert needed({"another": 999 * MIB}) == framework + 3 * MIB
    assert needed({template: 999 * MIB}) == framework - int(SHARED * framework) + 3 * MIB, "not more than that"
    assert needed({template: 10 * MIB}) == framework - 7 * MIB, "it is just being made"


def test_memory_limits_that_count(monkeypatch):
    parts = ModelParts(kind="torch", name="m", token="t", header=b"", arrays=ARRAYS, opened_bytes=0)  # noqa: S106
    found = Room(bytes=10 * MIB, left=None)
    monkeypatch.setattr(model_pool, "room", lambda *_: found)
    limits = replace(PredictLimits.from_dask_config(), in_dask_limit=True)
    of_host = replace(limits, in_dask_limit=False)
    pool = model_pool.ModelProcesses(SimpleNamespace(address="tcp://h:1"))
    pool._seats["t"] = model_pool._Seat("t")
    with pytest.raises(PredictionError, match=r"has 10\.00 MiB left; .* templates .* set train\.memory\.limit"):
        pool._check_room(parts, limits)
    pool._seats["t"] = model_pool._Seat("t")  # it made room
    pool._check_room(parts, of_host)  # of a host with memory to spare
    found = Room(bytes=10 * MIB, left=20 * MIB)
    with pytest.raises(PredictionError, match=r"has 20\.00 MiB left; .* is what is left of its container's limit"):
        pool._check_room(parts, of_host)
