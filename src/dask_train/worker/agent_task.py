"""The Dask task that an agent is.

It travels by value (``dask_train.cluster.by_value.ByValue``) and imports what it needs where it runs: the scheduler
unpickles every task, and need not have dask-train.
"""

from __future__ import annotations


def run_agent(run: str, agent: str, client_versions: dict[str, str], brief: bytes) -> bool:
    """Give the thread back to Dask, compare versions, and serve the run until it is over.

    Returns whether it has told of all its roles that they are gone, since its Dask worker leaves the cluster.
    """
    import asyncio
    import importlib.util
    import platform

    from distributed import get_worker, secede

    secede()
    if importlib.util.find_spec("dask_train") is None:
        raise RuntimeError("dask_train is not installed there: install it as on the client, on every Dask worker")
    from dask_train.version import __version__

    here = {"python": platform.python_version(), "dask_train": __version__}
    for package, num_parts in (("python", 2), ("dask_train", 3)):
        mine, theirs = here[package], client_versions[package]
        if mine.split(".")[:num_parts] != theirs.split(".")[:num_parts]:
            raise RuntimeError(f"{package} is {mine} there and {theirs} in the client; install the same on both sides")

    import pickle

    from dask_train.worker.agent import Agent, registry
    from dask_train.worker.agents_end import AgentsEnd

    async def serve() -> bool:
        worker = get_worker()
        served = Agent(worker, pickle.loads(brief), agent)  # noqa: S301 - sent by the client, as every Dask task is
        registry(worker)[run] = served
        AgentsEnd.of(worker)
        try:
            await served.run()
        finally:
            registry(worker).pop(run, None)
            served.gone.set_result(None)
        return served.has_told

    return asyncio.run(serve())
