"""The end of agents with their Dask worker, which stays open for a moment until they have ended."""

from __future__ import annotations

import asyncio

from distributed import Worker

from dask_train.cluster.worker_plugin import OwnPlugin
from dask_train.worker.agent import registry

# How long a Dask worker stays open for its agents. Dask's nanny waits 4 s for its whole end, so agents that need all of
# their own limits (a second for roles to leave, two to tell of them) are cut off: then their roles count as lost.
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
