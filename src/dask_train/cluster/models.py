"""A model on its way to the Dask workers: once to two of them, from where the others fetch it as they need it."""

from __future__ import annotations

from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Future, get_client

from dask_train.cluster.peer import Peer

# With one the loss of a Dask worker would be that of the model, before any other has fetched it.
NUM_FIRST = 2


def client_or_none(client: Client | None) -> Client | None:
    """The client that was passed, that of the Dask task which calls, or the default one, if there is any."""
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        return None


def on_dask(client: Client, model: Any) -> Any:
    """The model as a value that graphs depend on: a future, put on Dask workers, under a key of its contents.

    Dask frees it when neither a future nor a collection refers to it.

    Returns
    -------
    dask.delayed.Delayed
        An awaitable of it with an asynchronous client.
    """
    return Peer(client).run(_on_dask, client, model)


async def _on_dask(client: Client, model: Any) -> Delayed:
    key = f"model-{model.token}"
    state = client.futures.get(key)
    if state is not None and state.status == "finished":
        future = Future(key, client)
    else:
        future = await Peer(client).put(key, model, num_copies=NUM_FIRST)
    return Delayed(key, HighLevelGraph.from_collections(key, {key: future}, dependencies=()))
