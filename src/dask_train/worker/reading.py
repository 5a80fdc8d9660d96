"""What role processes have printed, asked for from elsewhere: part by part, so that nothing is lost or comes twice."""

from __future__ import annotations

import asyncio

from distributed import Worker

from dask_train.worker.agent import registry

# Role, rank, attempt; a position in the whole output of that; and the bytes before that position.
Position = tuple[str, int, int, int]
Part = tuple[str, int, int, int, bytes]


async def read_new(
    run: str, positions: list[Position], last_s: float = 0.0, *, dask_worker: Worker
) -> list[Part] | None:
    """Return the output of a run's roles here, each from where it has been read to; None if no such run is here.

    Parameters
    ----------
    run
        The run's name.
    positions
        How far which attempt of which role has been read; what is not named is read from its beginning.
    last_s
        Of a run that ends: how long its agent may take to end, which is waited for.
    dask_worker
        The Dask worker, which Dask gives.
    """
    agent = registry(dask_worker).get(run)
    if agent is not None and last_s:
        await asyncio.wait([asyncio.wrap_future(agent.gone)], timeout=last_s)
        agent = registry(dask_worker).get(run)
    if agent is None:
        return None
    known = {(role, rank, attempt): position for role, rank, attempt, position in positions}
    parts = []
    for (role, rank), child in list(agent.children.items()):  # the agent's thread starts others meanwhile
        end, data = child.output.bytes_since(known.get((role, rank, child.attempt), 0))
        parts.append((role, rank, child.attempt, end, data))
    return parts
