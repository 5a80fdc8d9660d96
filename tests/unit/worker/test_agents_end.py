"""A Dask worker that closes lets its agents tell how their roles have ended."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

from dask_train.worker import agents_end
from dask_train.worker.agents_end import AgentsEnd


class Agent:
    """One that ends as soon as it is told that its Dask worker closes, or never."""

    def __init__(self, *, ends: bool) -> None:
        self.gone: Future[None] = Future()
        self.ends, self.is_told = ends, False

    def leave_soon(self) -> None:
        self.is_told = True
        if self.ends:
            self.gone.set_result(None)


def test_it_waits_for_its_agents_and_not_for_ever(monkeypatch):
    monkeypatch.setattr(agents_end, "END_S", 0.01)
    loop = SimpleNamespace(add_callback=lambda function: function())
    worker = SimpleNamespace(plugins={}, loop=loop, train_agents={"r": Agent(ends=True), "s": Agent(ends=False)})
    asyncio.run(AgentsEnd.of(worker).teardown(worker))
    assert all(agent.is_told for agent in worker.train_agents.values())
    asyncio.run(AgentsEnd.of(worker).teardown(SimpleNamespace(plugins={})))
