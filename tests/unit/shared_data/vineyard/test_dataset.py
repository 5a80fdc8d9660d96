"""Columns that are picked of an object keep what they were cut from; a failed publication ends soon."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import dask
import pandas as pd
import pytest

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.published_frames import frames_in
from dask_train.errors import DataError
from dask_train.shared_data.vineyard import dataset, putting
from dask_train.shared_data.vineyard.dataset import frames_of
from dask_train.shared_data.vineyard.opening import OpenedObject

FRAME = pd.DataFrame({"kind": pd.Categorical(["u", "v"]), "n": [1, 2], "late": [0, 1]})
KIND, N, LATE = frames_in("data", dict(FRAME.items()), None, None)


def an_object(*frames):
    contents = json.dumps([None if frame is None else frame.to_json() for frame in frames])
    columns = ("kind", "n", "late")[: len(frames)] or None
    return OpenedObject(
        identifier="o1", type_name="", partitions=(), columns=columns, form=None, frames=contents if frames else None
    )


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (("kind", "n", "late"), (KIND, N, LATE)),
        (("kind", "late"), (KIND, LATE)),
        ((("n", "kind"), "late"), (FrameSchema.of(FRAME[["n", "kind"]]), LATE)),
        ((("kind",),), (FrameSchema.of(FRAME[["kind"]]),)),
    ],
)
def test_picked_columns_keep_their_frames(columns, found):
    assert frames_of(an_object(KIND, N, LATE), columns) == found


def test_columns_beside_arrays_keep_their_categories():
    (both,) = frames_of(an_object(KIND, None), (("kind", "n"),))
    assert (both.features, both.columns) == (None, KIND.columns)
    assert frames_of(an_object(None, None), (("kind", "n"), "n")) == (None, None)
    assert frames_of(an_object(), ("kind",)) == ()


class Failing:
    """A data set put into daemons by Dask workers of which one fails; notes what happens, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy_looks: int = 2) -> None:
        self.events: list[tuple] = []
        self.looks_left = busy_looks
        self.numbers = {"tcp://a:1": 7}
        error = DataError("memory is full.")
        self.futures = [SimpleNamespace(key="late", status="pending"), Failed(error)]
        self.peer = SimpleNamespace(dask_end=None, loop=None, workers=self.workers, on_workers=self.on_workers)
        for name, value in {
            "ensure_plugin": self.nothing,
            "Daemons": SimpleNamespace(find=self.find),
            "BatchForm": lambda *_: None,
            "submitted": lambda *_, **__: self.futures,
            "as_completed": self.as_completed,
            "cancel": self.cancel,
            "_LOOK_S": 0.0,
        }.items():
            monkeypatch.setattr(dataset, name, value)

    def delayed_parts(self, *_: Any) -> list[Any]:
        return []

    async def nothing(self, *_: Any) -> None: ...

    async def find(self, *_: Any) -> Failing:
        return self

    as_of_now = find

    async def workers(self) -> dict[str, Any]:
        return {"tcp://a:1": {}}

    async def ask(self, instance: int | None, function: Any, *_: Any) -> None:
        self.events.append((function.__name__, instance))

    async def as_completed(self, futures: list[Any], loop: Any) -> Any:
        _ = loop
        yield futures[1]
        raise AssertionError("one that fails is not told of before others end")

    async def cancel(self, peer: Any, futures: list[Any]) -> None:
        assert (peer, futures) == (self.peer, self.futures)
        self.events.append(("cancel",))

    async def on_workers(self, function: Any, keys: list[str], on_error: str) -> dict[str, Any]:
        assert (function, keys, on_error) == (putting.are_known, ["late", "bad"], "ignore")
        self.events.append(("look",))
        self.looks_left -= 1
        return {"tcp://a:1": self.looks_left >= 0}

    def publish(self) -> None:
        asyncio.run(dataset.published(self.peer, "d", self, None, True, ()))


class Failed:
    key, status = "bad", "error"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def exception(self) -> Exception:
        return self.error


def test_the_first_error_is_told_once_nothing_is_put_any_more(monkeypatch):
    failing = Failing(monkeypatch)
    with pytest.raises(DataError, match=r"memory is full\."):
        failing.publish()
    assert failing.events == [("cancel",), *[("look",)] * 3, ("clear", 7), ("cancel",)]


def test_what_hangs_is_waited_for_until_the_deadline(monkeypatch):
    failing = Failing(monkeypatch, busy_looks=1 << 30)
    with dask.config.set({"train.progress.timeout": "50ms"}), pytest.raises(DataError, match=r"memory is full\."):
        failing.publish()
    assert [event for event in failing.events if event != ("look",)] == [("cancel",), ("clear", 7), ("cancel",)]


def test_a_task_is_known_to_a_dask_worker_until_it_ends():
    worker = SimpleNamespace(state=SimpleNamespace(tasks={"a": None}))
    assert putting.are_known(["b", "a"], worker)
    assert not putting.are_known(["b"], worker)
