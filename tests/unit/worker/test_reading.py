"""What is asked of an agent's output, while it lives and when it ends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from dask_train.worker.reading import read_new

LONG_S = 60.0  # nobody waits so long: what is waited for comes


def dask_worker() -> Any:
    """One with an agent, whose role has printed something."""
    output = SimpleNamespace(bytes_since=lambda position: (5, b"hello"[position:]))
    child = SimpleNamespace(attempt=1, output=output)
    return SimpleNamespace(train_agents={"mine": SimpleNamespace(children={("worker", 0): child}, gone=Future())})


def test_parts_from_where_they_have_been_read():
    worker = dask_worker()
    assert asyncio.run(read_new("mine", [], dask_worker=worker)) == [("worker", 0, 1, 5, b"hello")]
    known = [("worker", 0, 1, 3), ("worker", 0, 0, 5)]
    assert asyncio.run(read_new("mine", known, dask_worker=worker)) == [("worker", 0, 1, 5, b"lo")]
    assert asyncio.run(read_new("another", [], LONG_S, dask_worker=worker)) is None


def test_a_role_that_starts_meanwhile_disturbs_nobody():
    worker = dask_worker()
    children = worker.train_agents["mine"].children

    def bytes_since(_: int) -> tuple[int, bytes]:
        children["worker", 1] = SimpleNamespace()
        return 5, b"hello"

    children["worker", 0].output.bytes_since = bytes_since
    assert asyncio.run(read_new("mine", [], dask_worker=worker)) == [("worker", 0, 1, 5, b"hello")]


def test_the_end_of_an_agent_is_waited_for():
    worker = dask_worker()
    agent = worker.train_agents["mine"]

    def ends() -> None:
        del worker.train_agents["mine"]
        agent.gone.set_result(None)

    async def run() -> Any:
        asked = asyncio.create_task(read_new("mine", [], LONG_S, dask_worker=worker))
        await asyncio.sleep(0)
        assert not asked.done()
        ending = threading.Thread(target=ends)  # as an agent does, in a thread of its own
        ending.start()
        found = await asyncio.wait_for(asked, LONG_S / 2)
        ending.join()
        return found

    assert asyncio.run(run()) is None


def test_one_that_takes_longer_is_read_meanwhile():
    assert asyncio.run(read_new("mine", [], 0.01, dask_worker=dask_worker())) == [("worker", 0, 1, 5, b"hello")]
