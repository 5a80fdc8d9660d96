"""What a model needs of Dask workers is asked for before it is sent."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import CancelledError
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.client import FutureCancelledError

from dask_train.errors import PredictionError
from dask_train.predicting import sent_models as models
from dask_train.predicting.server.in_process import ObjectModel
from dask_train.predicting.server.values import ModelParts
from dask_train.settings.process import Settings

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
    assert check(monkeypatch, ObjectModel(json.loads, None, "loads", "t", Settings())) == {"dask_train", "json"}


class Leaving:
    """A peer whose Dask workers leave while a model is put: each time in another way, and then no more."""

    def __init__(self, *ways: Exception | int) -> None:
        self.ways, self.keys = list(ways), []
        self.dask_end: Any = SimpleNamespace(futures={}, id="me", get=lambda graph, *_, **__: self.tasks.update(graph))
        self.tasks: dict[str, Any] = {}

    async def put(self, key: str, _: Any, *, num_copies: int) -> str:
        self.keys.append(key)
        self.now = self.ways.pop(0) if self.ways else num_copies
        if isinstance(self.now, Exception):
            raise self.now
        return f"future of {key}"

    async def num_copies(self, _: str) -> int:
        assert isinstance(self.now, int)
        return self.now


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of which the scheduler was asked whether they are given up."""
    keys: list[str] = []

    async def until_given_up(_: Any, key: str) -> None:
        keys.append(key)

    monkeypatch.setattr(models, "until_given_up", until_given_up)
    return keys


def test_a_model_is_put_elsewhere_where_a_dask_worker_leaves(given_up: list[str]) -> None:
    peer: Any = Leaving(OSError("closed"), KeyError("tcp://h:1"), CancelledError(), 0)
    assert asyncio.run(models._put(peer, "model-t", KERAS)) == "future of model-t"
    assert peer.keys == given_up == ["model-t"] * 5
    tells, name = peer.tasks["model-t"]
    with pytest.raises(PredictionError, match="Model 'm' is lost: all Dask workers that had it have left"):
        tells(name)


def test_dask_workers_that_leave_each_time_are_an_error_of_ours(given_up: list[str]) -> None:
    peer: Any = Leaving(*[OSError("closed")] * models.MOST_TRIES)
    with pytest.raises(PredictionError, match="Model 'm' could not be put on the Dask workers: 5 times") as raised:
        asyncio.run(models._put(peer, "model-t", KERAS))
    assert isinstance(raised.value.__cause__, OSError)
    assert len(given_up) == models.MOST_TRIES


class Submitting:
    """A client that takes models as tasks; of one that it has already the future is as it is told."""

    def __init__(self, status: str) -> None:
        self.futures: dict[str, Any] = {}
        self.status, self.keys = status, []

    def submit(self, task: Any, *, key: str) -> Any:
        self.keys.append(key)
        return SimpleNamespace(status=self.status, result=task)


@pytest.mark.parametrize(
    ("size", "status", "way"),
    [(0, "pending", "a task"), (0, "cancelled", "put"), (models.KEPT_BYTES, "pending", "put")],
)
def test_a_small_model_is_a_task_that_dask_does_again(
    monkeypatch: pytest.MonkeyPatch, size: int, status: str, way: str
) -> None:
    async def checked(*_: Any) -> None:
        pass

    async def put(*_: Any) -> str:
        return "put"

    monkeypatch.setattr(models, "_check_modules", checked)
    monkeypatch.setattr(models, "_put", put)
    client: Any = Submitting(status)
    monkeypatch.setattr(models, "Peer", lambda client: client)
    found: Any = asyncio.run(models._on_dask(client, replace(KERAS, header=b" " * size)))
    assert client.keys == ["model-t"] * (size == 0)
    assert found == "put" if way == "put" else found.result().name == "m"


def test_a_model_whose_task_has_failed_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async def checked(*_: Any) -> None:
        pass

    monkeypatch.setattr(models, "_check_modules", checked)
    monkeypatch.setattr(models, "Peer", lambda client: client)
    client: Any = Submitting("pending")
    client.futures = dict.fromkeys(["model-t", "model-t-again"], SimpleNamespace(status="error"))
    asyncio.run(models._on_dask(client, KERAS))
    assert client.keys == ["model-t-again-again"]


@pytest.mark.parametrize(
    ("reason", "tries"), [("lost dependencies", models.MOST_TRIES), ("already forgotten", 5), ("client closed", 1)]
)
def test_what_is_lost_with_the_model_is_computed_again_and_an_end_comes(reason: str, tries: int) -> None:
    calls = []

    def compute() -> None:
        calls.append(1)
        raise PredictionError("lost") from FutureCancelledError("x", reason)

    with pytest.raises(PredictionError, match="lost"):
        models.until_kept(compute)
    assert len(calls) == tries


def test_a_lost_model_is_sent_again() -> None:
    errors = [PredictionError("Model 'm' is lost: all Dask workers that had it have left.")]

    def compute() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert models.until_kept(compute) == "done"
