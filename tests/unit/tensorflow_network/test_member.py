"""How a batch gets into the queue of a member, on a Dask worker of plain objects."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.errors import RoleLostError
from dask_train.frameworks.ports import hold_port
from dask_train.roles import AddressBook
from dask_train.tensorflow_network.member import Member, member_of
from dask_train.worker import results


class Scheduler:
    """Records what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    async def train_delivered(self, **message: Any) -> dict[str, Any]:
        self.told.append(message)
        return {"status": "OK"}


def make_member(queue_size: int = 1) -> Member:
    worker = SimpleNamespace(address="tcp://h:1", ip="127.0.0.1", data={"here": "x"}, rpc=None, loop=None)
    worker.scheduler = Scheduler()
    return Member(worker, "n1", "worker", 0, queue_size=queue_size, default_timeout_s=5.0)


def run(test: Any) -> None:
    """Run ``test(member)`` on an event loop."""

    async def with_member() -> None:
        made = make_member()
        try:
            await test(made)
        finally:
            made.leave()

    asyncio.run(with_member())


def test_a_batch_waits_for_room():
    async def deliver(made: Member) -> None:
        made.queue.put("a role's own")
        delivering = asyncio.ensure_future(made._deliver("f1", "here", ["tcp://h:1"]))
        await asyncio.sleep(0.01)
        assert made.worker.scheduler.told == [], "neither delivered nor given up"
        assert made.queue.get() == "a role's own"
        await asyncio.wait_for(delivering, 60)
        assert made.queue.get_nowait() is made.worker.data["here"]
        assert made.worker.scheduler.told == [{"feed": "f1", "key": "here", "error": ""}]

    run(deliver)


def test_a_batch_that_comes_after_the_end_is_told():
    async def deliver(made: Member) -> None:
        made.queue.put("a role's own")
        delivering = asyncio.ensure_future(made._deliver("f1", "here", ["tcp://h:1"]))
        await asyncio.sleep(0)
        made.leave()
        await asyncio.wait_for(delivering, 60)
        assert made.worker.scheduler.told[0]["error"] == "the queue was closed"

    run(deliver)


@pytest.mark.parametrize(
    ("gathered", "error"),
    [
        (({}, ["there"], [], []), "it is not on tcp://h:2"),
        (({}, [], ["there"], []), "it can not be read on tcp://h:2"),
        (OSError("no route"), "OSError: no route"),
        (({"there": "y"}, [], [], []), ""),
    ],
)
def test_a_batch_from_elsewhere(monkeypatch, gathered, error):
    async def gather(who_has: Any, rpc: Any, who: str) -> Any:
        assert who_has == {"there": ["tcp://h:2"]}
        if isinstance(gathered, Exception):
            raise gathered
        return gathered

    monkeypatch.setattr(results, "gather_from_workers", gather)

    async def deliver(made: Member) -> None:
        await made._deliver("f1", "there", ["tcp://h:2"])
        assert made.worker.scheduler.told == [{"feed": "f1", "key": "there", "error": error}]
        assert len(made.queue) == (not error)

    run(deliver)


def test_ports_are_held_until_they_are_left():
    holders = [hold_port() for _ in range(20)]
    try:
        assert len({holder.getsockname()[1] for holder in holders}) == 20
    finally:
        for holder in holders:
            holder.close()


def test_who_is_no_member():
    worker = SimpleNamespace(address="tcp://h:1")
    with pytest.raises(RoleLostError, match=r"tcp://h:1 is no member of network n1\. Its process was restarted"):
        member_of(worker, "n1")
    worker.tensorflow_member = SimpleNamespace(network="n2")
    with pytest.raises(RoleLostError, match="no member of network n1"):
        member_of(worker, "n1")


def test_servers_reach_each_other_past_a_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    seen: list[str] = []

    def start_server(*_: Any) -> None:
        seen.append(os.environ["no_proxy"])

    async def start(made: Member) -> None:
        await made.start(start_server, AddressBook({"worker": ["10.0.0.1:1", "10.0.0.2:1"]}))

    run(start)
    assert seen == ["localhost,10.0.0.1,10.0.0.2"]
