"""What is told of segments in Dask's memory, and what of those that are none, are lost, or are yet to come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import wait

from dask_train.errors import DataError
from dask_train.shared_data import described
from dask_train.shared_data.described import cancel, check_computed, describe

Y = da.arange(10, chunks=4)


def fails() -> None:
    raise RuntimeError("no such file.")


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(described, "LOST_LOOK_S", 0.01)
    monkeypatch.setattr(described, "LOOK_AGAIN_S", 0.01)


def test_a_partition_that_is_there_or_can_not_be_computed(client, peer):
    good, bad = client.submit(int, "7"), client.submit(fails)
    wait([good, bad])
    peer.run(check_computed, good, "data")
    with pytest.raises(
        DataError, match=r"A partition of data can't be computed: RuntimeError: no such file\. Mend"
    ) as error:
        peer.run(check_computed, bad, "data")
    assert isinstance(error.value.__cause__, RuntimeError)


def test_one_that_was_cancelled(client, peer):
    future = client.submit(int, "8")
    wait([future])
    future.cancel()
    with pytest.raises(DataError, match="A partition of data is lost, and can't be computed again"):
        peer.run(check_computed, future, "data")


class LostFuture:
    """A result that is lost until ``left`` looks have been made."""

    key, client = "k", None

    def __init__(self, left: int = 1 << 30) -> None:
        self.left = left
        self._state = SimpleNamespace(wait=self._wait)

    @property
    def status(self) -> str:
        return "lost" if self.left else "finished"

    async def _wait(self, timeout_s: float) -> None:
        self.left -= 1
        if self.left % 2:
            raise TimeoutError


def computed_again(monkeypatch: pytest.MonkeyPatch, future: LostFuture, answer: dict[str, Any], peer: Any) -> None:
    """What is made of a result that is lost where the scheduler answers so."""

    async def ask(handler: str, keys: list[Any]) -> dict[str, Any]:
        assert (handler, keys) == ("train_run_who_has", ["k"])
        return answer

    async def nothing(_: Any) -> None: ...

    monkeypatch.setattr(described, "Peer", lambda _: SimpleNamespace(ask=ask))
    monkeypatch.setattr(described, "ensure_plugin", nothing)
    with dask.config.set({"train.progress.timeout": "50 ms"}):
        peer.run(check_computed, future, "data")


def test_one_that_dask_computes_again_is_waited_for(monkeypatch, peer):
    future = LostFuture(4)
    computed_again(monkeypatch, future, {"lost": [], "where": [["k", []]]}, peer)
    assert future.left == 0


def test_one_that_is_there_again_before_the_client_hears_of_it(monkeypatch, peer):
    computed_again(monkeypatch, LostFuture(), {"lost": [], "where": [["k", ["tcp://a"]]]}, peer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"lost": ["k"], "where": []}, "is lost, and can't be computed again"),
        ({"lost": [], "where": [["k", []]]}, r"was lost, and was not computed again within 0\.05 s"),
    ],
)
def test_one_that_does_not_come_back(monkeypatch, peer, answer, text):
    with pytest.raises(DataError, match=f"A partition of data {text}"):
        computed_again(monkeypatch, LostFuture(), answer, peer)


def test_segments_are_described_by_who_holds_them(shared, peer, client):
    segments = shared(da.stack([Y, 2 * Y], axis=1), Y.astype("f4"))
    found, where = peer.run(describe, peer, "data", segments.keys)
    assert [found[key][0] for key in segments.keys] == [4, 4, 2]
    for key in segments.keys:
        assert [(column.dtype, column.row_shape) for column in found[key][1]] == [("<i8", (2,)), ("<f4", ())]
        assert set(where[key]) == {ws.address for ws in client.cluster.scheduler.tasks[key].who_has}
    assert peer.run(describe, peer, "data", []) == ({}, {})


def test_a_result_that_is_no_segment(peer, client):
    other = client.submit(np.ones, 3)
    wait([other])
    with pytest.raises(DataError, match=r"data: .* is a ndarray and no segment\."):
        peer.run(describe, peer, "data", [other.key])


def test_one_that_nobody_knows(shared, peer):
    with pytest.raises(DataError, match="A partition of data is lost"):
        peer.run(describe, peer, "data", [*shared(Y).keys, "nobody's"])


def test_one_that_does_not_come_in_time(shared, peer, client, monkeypatch, wait_for):
    monkeypatch.setattr(described, "DESCRIBE_S", 0.05)
    segments, waits = shared(Y), client.submit(int, "9", workers=["nobody"], allow_other_workers=False)
    wait_for(lambda: waits.key in client.cluster.scheduler.tasks, "it is known")
    with pytest.raises(DataError, match=r"1 of 4 partitions of data were not told of within 0\.05 s"):
        peer.run(describe, peer, "data", [*segments.keys, waits.key])


class Moving:
    """A scheduler's answers, of a segment that moves from ``a`` to ``b`` while ``a`` is asked."""

    poll_s = 0.0

    def __init__(self, at_first: Any) -> None:
        self.at_first, self.asked = at_first, []

    async def ask(self, handler: str, keys: list[Any], timeout_s: float) -> dict[str, Any]:
        return {"lost": [], "where": [[key, ["b"] if self.asked else ["a", "b"]] for key in keys]}

    async def on_workers(self, function: Any, keys: list[Any], workers: list[str]) -> dict[str, Any]:
        self.asked += workers
        if workers == ["a"] and isinstance(self.at_first, Exception):
            raise self.at_first
        return {"b": dict.fromkeys(keys, (3, ()))} if workers == ["b"] else {"a": {}}


@pytest.mark.parametrize("at_first", [None, OSError("it is gone"), DataError("it closes")])
def test_one_that_has_moved_is_looked_for_again(peer, at_first):
    moving: Any = Moving(at_first)
    assert peer.run(describe, moving, "data", ["k"]) == ({"k": (3, ())}, {"k": ["b"]})
    assert moving.asked == ["a", "b"]


def test_what_is_cancelled_is_forgotten_when_this_returns(client, peer):
    futures = client.map(int, ["3", "4"])
    wait(futures)
    scheduler = client.cluster.scheduler
    assert all(future.key in scheduler.tasks for future in futures)
    peer.run(cancel, peer, futures)
    assert not any(future.key in scheduler.tasks for future in futures)
    peer.run(cancel, peer, [])


def test_cancelling_does_not_hang_with_the_scheduler(monkeypatch, peer):
    monkeypatch.setattr(described, "FORGET_S", 0.01)
    cancelled = []

    async def give_up(futures: Any) -> None:
        cancelled.extend(futures)

    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    hangs: Any = SimpleNamespace(cancel=give_up, ask=never)
    future: Any = SimpleNamespace(key="k")
    peer.run(cancel, hangs, [future])
    assert cancelled == [future]
