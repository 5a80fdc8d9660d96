"""A model on its way to the Dask workers: a small one as a task, a large one once to two of them.

The others fetch it from those as they need it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Future

from dask_train.cluster.gathered import LOST, is_lost
from dask_train.cluster.given_up import until_given_up
from dask_train.cluster.peer import Peer
from dask_train.cluster.sealed import Sealed
from dask_train.driver.preflight import how_to_send, lacked_modules, modules_of, outdated_module
from dask_train.errors import PredictionError
from dask_train.predicting.server.in_process import ObjectModel
from dask_train.predicting.server.values import ModelParts

# Models up to this size stay in the scheduler, which gives one to another Dask worker when all that had it have died.
KEPT_BYTES = 1 << 20
# Of larger ones. With one the loss of a Dask worker would be that of the model, before any other has fetched it.
NUM_FIRST = 2
# How often it is tried to put a model there, while Dask workers leave.
MOST_TRIES = 5
# Pickles up to this size are looked through for modules, in seconds at most; what others lack is seen where they open.
LOOKED_THROUGH_BYTES = 4 << 20
# What an error ends with that stands for a model.
_IS_LOST = "is lost: all Dask workers that had it have left."


def on_dask(client: Client, model: Any) -> Any:
    """Return the model as a value that graphs depend on: a future, under a key of its contents.

    Dask frees it when neither a future nor a collection refers to it.

    Returns
    -------
    distributed.Future
        An awaitable of it with an asynchronous client.

    Raises
    ------
    PredictionError
        No Dask worker has a module that the model needs.
    """
    return Peer(client).run(_on_dask, client, model)


async def _on_dask(client: Client, model: Any) -> Future:
    key = f"model-{model.token}"
    while (state := client.futures.get(key)) is not None and state.status == "error":
        key += "-again"  # what depends on a key of the scheduler's that has failed fails with it
    if state is not None and state.status == "finished":
        return Future(key, client)
    await _check_modules(client, model)
    del state  # else its key would not be given up
    if getsizeof(model) <= KEPT_BYTES:
        future = client.submit(Sealed(partial(_itself, model)), key=key)
        if future.status not in ("cancelled", "error"):  # one that was lost is made again
            return future
        del future  # of a collection whose model is lost, or was cancelled
    return await _put(Peer(client), key, model)


def until_kept(compute: Callable[[], Any]) -> Any:
    """Return what a computation gives that puts a model first, again where all Dask workers die that had the model.

    Raises
    ------
    PredictionError
        They have died each time, or it has another reason.
    """
    for left in reversed(range(MOST_TRIES)):
        try:
            return compute()
        except PredictionError as error:
            if not (left and (is_lost(error) or error.what.endswith(_IS_LOST))):
                raise
    raise AssertionError


def _itself(model: Any) -> Any:
    """Return what the task was given."""
    return model


def _tell_of_loss(name: str) -> None:
    """Stand for a model that was put on Dask workers: Dask runs this where none of them is left."""
    raise PredictionError(
        f"Model {name!r} {_IS_LOST}",
        "They were killed, perhaps for want of memory, or restarted. A model above 1 MiB lies on Dask workers alone.",
        "Call predict again, which sends it anew; look at the Dask workers' logs for why they left.",
    )


async def _put(peer: Peer, key: str, model: Any) -> Future:
    """Put a model on Dask workers, again where those leave that were to hold it.

    Raises
    ------
    PredictionError
        They have left each time.
    """
    lost: Exception | None = None
    for _ in range(MOST_TRIES):
        if key not in peer.dask_end.futures:
            await until_given_up(peer.dask_end, key)
        try:
            future = await peer.put(key, model, num_copies=NUM_FIRST)
        except (OSError, KeyError, *LOST) as error:  # whatever Dask raises of one that leaves meanwhile
            lost = error
            continue
        if await peer.num_copies(key):
            # A value that was put there is data to the scheduler; with a task to its key it does that after a loss.
            peer.dask_end.get({key: (_tell_of_loss, model.name)}, [key], sync=False)
            return future
        del future  # gone with its only holder
    raise PredictionError(
        f"Model {model.name!r} could not be put on the Dask workers: {MOST_TRIES} times one that was to hold it left.",
        "They are killed, perhaps for want of memory, or are retired.",
        "Look at the Dask workers' logs.",
    ) from lost


def as_collection(model: Any) -> Any:
    """Return what :func:`on_dask` gives as frames' graphs need it, which lose futures that are arguments of tasks.

    Graphs of arrays are to have the future itself: they lose those of collections where frames are made of them. What
    is no future stays as it is.
    """
    if not isinstance(model, Future):
        return model
    key = model.key
    return Delayed(key, HighLevelGraph.from_collections(key, {key: model}, dependencies=()))


async def _check_modules(client: Client, model: ModelParts | ObjectModel) -> None:
    """Check that the model can be opened on some Dask worker, and that none has other code of it.

    Where others can't open it, a task will say so.
    """
    names = _modules(model)
    missing = await lacked_modules(Peer(client), names, None)
    if missing and all(missing.values()):
        address, (name, *_) = next(iter(missing.items()))
        raise PredictionError(
            f"The Dask worker {address} has no module {name!r}, which model {model.name!r} needs, nor have the others.",
            "It is on the client's import path only.",
            how_to_send(name),
        )
    if other := await outdated_module(Peer(client), names, None):
        raise PredictionError(*other)


def _modules(model: ModelParts | ObjectModel) -> set[str]:
    """Return what Dask workers need to open a model, as far as it is quick to tell."""
    names = {"dask_train"}
    if isinstance(model, ModelParts):
        names |= {"keras", model.environment["KERAS_BACKEND"]} if model.environment else {"torch"}
        pickled = model.header if model.kind in ("keras", "torch") else b""
    else:
        pickled = model.pickled
    return names | modules_of(pickled) if 0 < len(pickled) <= LOOKED_THROUGH_BYTES else names
