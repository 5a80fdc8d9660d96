"""What a model process is let start with."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.predicting.model_pool import FRAMEWORK_BYTES, FRAMEWORK_BYTES_ELSE, SHARED, _needed
from dask_train.predicting.server.runners import imports_of
from dask_train.predicting.server.values import ModelParts
from dask_train.process.templates import name_of

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
