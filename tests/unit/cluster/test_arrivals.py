"""How many workers train where no number is named."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.cluster import arrivals
from dask_train.cluster.arrivals import default_fit_workers, default_workers
from dask_train.errors import PlacementError


@pytest.fixture(autouse=True)
def only_looks(monkeypatch):
    """A peer is what the tests say that it is, and its first Dask worker is there."""
    monkeypatch.setattr(arrivals, "Peer", lambda client: client)
    monkeypatch.setattr(arrivals, "wait_for_first", lambda peer: None)


def client_of(*workers: dict[str, Any], asynchronous: bool = False) -> Any:
    """The peer of a client of a cluster."""
    found = {f"tcp://{number}": {"host": "a", "resources": {}, **worker} for number, worker in enumerate(workers)}
    return SimpleNamespace(asynchronous=asynchronous, run=lambda ask: ask(), workers=lambda: found)


A, B = {"host": "a"}, {"host": "b"}


@pytest.mark.parametrize(
    ("workers", "on", "count"),
    [
        ([A, A, A], None, 1),
        ([A, B, A, B], None, 2),
        ([A, A, B], ["tcp://0", "tcp://1"], 1),
        ([{"gpu": {"name": "H100"}}, A], None, 2),
        ([{"resources": {"GPU": 1}}, {"resources": {"GPU": 1}}, B], None, 3),
        ([{"resources": {"GPU": 1}}, A, A], ["tcp://1", "tcp://2"], 1),
        ([], None, 1),
    ],
    ids=["a host", "two hosts", "some of one host", "devices seen", "devices said", "others' devices", "none yet"],
)
def test_one_a_host_trains_and_one_a_device(workers, on, count):
    assert default_fit_workers(client_of(*workers), on) == count


def test_one_a_dask_worker_runs_a_function():
    assert default_workers(client_of(A, A, B), None) == 3
    assert default_workers(client_of(A, A, B), ["tcp://0"]) == 1


def test_an_asynchronous_client_can_not_count_them_before_the_call_returns():
    client = client_of(A, B, asynchronous=True)
    for count in (default_workers, default_fit_workers):
        with pytest.raises(ValueError, match=r"this client is asynchronous: .* Pass their number: workers="):
            count(client, None)
    assert default_workers(client, ["tcp://0"]) == 1


@pytest.mark.parametrize(
    ("gpus", "num_devices", "count"), [("auto", 4, 4), ("auto", 0, 2), (1, 4, 4), (1, 0, 2), (0, 0, 2)]
)
def test_one_a_device_trains_where_devices_are_asked_for(monkeypatch, gpus, num_devices, count):
    client = client_of(A, B, {"host": "a", "gpu": {"name": "H100"}})
    client.run = lambda ask, *args: ask(*args)
    monkeypatch.setattr(arrivals, "ask_offers", lambda *_: {})
    monkeypatch.setattr(arrivals, "count_devices", lambda *_: num_devices)
    assert default_fit_workers(client, None, gpus) == count


def test_a_dask_worker_that_did_not_come_in_time_is_not_asked_for_any_more(monkeypatch):
    """The error holds the frames that it has passed, as a notebook holds the error."""
    released = []

    async def ask(*_: Any, **__: Any) -> dict[str, bool]:
        return {"some": False}

    async def has_plugin(_: Any) -> None:
        pass

    monkeypatch.setattr(arrivals, "ensure_plugin", has_plugin)
    wanted = SimpleNamespace(release=lambda: released.append(1))
    peer: Any = SimpleNamespace(ask=ask, dask_end=SimpleNamespace(submit=lambda *_, **__: wanted))
    with pytest.raises(PlacementError, match="No Dask worker has come within 0 s"):
        asyncio.run(arrivals._first(peer, 0.0))
    assert released == [1]
