"""What a model needs of Dask workers is asked for before it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dask_train.errors import PredictionError
from dask_train.predicting import sent_models as models
from dask_train.predicting.server.in_process import ObjectModel
from dask_train.predicting.server.values import ModelParts

KERAS = ModelParts(
    kind="file",
    name="m",
    token="t",  # noqa: S106 - tells models apart
    header=b"",
    arrays=(),
    opened_bytes=0,
    environment={"KERAS_BACKEND": "tensorflow"},
)


def check(monkeypatch: pytest.MonkeyPatch, model: Any, **lacked: list[str]) -> set[str]:
    asked: set[str] = set()

    async def answer(peer: Any, names: Any, addresses: Any) -> dict[str, list[str]]:
        asked.update(names)
        return lacked

    monkeypatch.setattr(models, "lacked_modules", answer)
    monkeypatch.setattr(models, "Peer", lambda client: client)
    asyncio.run(models._check_modules(None, model))
    return asked


def test_a_framework_that_no_dask_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PredictionError, match="Dask worker a has no module 'tensorflow', which model 'm' needs, nor"):
        check(monkeypatch, KERAS, a=["tensorflow"], b=["tensorflow"])
    # Dask may be told to keep to the other one; where it is not, a task says what is missing.
    assert check(monkeypatch, KERAS, a=["tensorflow"], b=[]) == {"dask_train", "keras", "tensorflow"}


def test_modules_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, ObjectModel(json.loads, None, "loads", "t")) == {"dask_train", "json"}
