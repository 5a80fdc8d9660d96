"""The end of agents with their Dask worker: it closes when they have told how their roles have ended."""

from __future__ import annotations

import asyncio

from distributed import Worker

from dask_train.cluster.worker_plugin import OwnPlugin
from dask_train.worker.agent import registry

# How long agents may take to end their roles, and to tell it; Dask's nanny waits 4 s for the whole end.
END_S = 2.5


class AgentsEnd(OwnPlugin):
    """A plug-in of the Dask worker that lets its agents end before it closes its connections."""

    name = "dask-train-agents"

    async def teardown(self, worker: Worker) -> None:
        """Let the agents end, and wait for it."""
        agents = list(registry(worker).values())
        for agent in agents:
            agent.leave_soon()
        if agents:
            await asyncio.wait([asyncio.wrap_future(agent.gone) for agent in agents], timeout=END_S)
