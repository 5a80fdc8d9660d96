"""What segments in Dask's memory are: asked of the Dask workers that hold them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from distributed import Future

from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.compat.distributed import status_known
from dask_train.config import Deadlines
from dask_train.data.columns import Column
from dask_train.errors import DaskTrainError, DataError
from dask_train.worker import offers

# How long Dask workers may take to tell.
DESCRIBE_S = 30.0
# How often the scheduler is asked whether a result that was lost is still being computed again.
LOST_LOOK_S = 1.0
# Between two looks for segments that are not where the scheduler says, as they were moved meanwhile; nothing tells.
LOOK_AGAIN_S = 0.1
# How long the scheduler may take to forget what is no longer wanted; clients send that now and then.
FORGET_S = 1.0


async def check_computed(future: Future, what: str) -> None:
    """Check that a partition that is done is there; wait for one that was lost meanwhile and is computed again.

    Raises
    ------
    DataError
        It could not be computed, or was released, or was not computed again within ``train.progress.timeout``.
    """
    await _computed_again(future, what)
    if future.status == "error":
        error = await future.exception()
        raise DataError(
            f"A partition of {what} can't be computed: {type(error).__name__}: {str(error).rstrip('.')}.",
            change="Mend what computes it: its traceback is the cause of this error.",
        ) from error
    if future.status == "cancelled":
        raise lost(what)


async def _computed_again(future: Future, what: str) -> None:
    """Dask calls a result lost from when its Dask worker has died until it is there again."""
    data_timeout_s = Deadlines.from_dask_config().progress_s
    deadline = time.monotonic() + data_timeout_s
    while future.status in ("lost", "pending"):
        with suppress(TimeoutError):
            await status_known(future, LOST_LOOK_S)
            continue
        peer = Peer(future.client)
        await ensure_plugin(peer)
        answer = await peer.ask("train_run_who_has", keys=[future.key])
        if answer["lost"]:
            raise lost(what)
        if any(addresses for _, addresses in answer["where"]):
            return  # which the client is about to learn
        if time.monotonic() > deadline:
            raise DataError(
                f"A partition of {what} was lost, and was not computed again within {data_timeout_s:g} s.",
                "Its Dask worker died, and the others are busy or few.",
                "Look at the Dask dashboard, or raise train.progress.timeout.",
            )


def lost(what: str) -> DataError:
    """Return the error for a partition that is not there, and that Dask will not compute again."""
    return DataError(
        f"A partition of {what} is lost, and can't be computed again.",
        "What it is computed from is gone: it was scattered to a Dask worker that has left, or somebody cancelled it.",
        "Compute it in tasks, which Dask repeats, in place of client.scatter; or scatter it again.",
    )


async def describe(
    peer: Peer, what: str, keys: Sequence[Any]
) -> tuple[dict[Any, tuple[int, tuple[Column, ...]]], dict[Any, list[str]]]:
    """Rows and columns of segments, and the addresses of the Dask workers that hold each, first the one that answered.

    Raises
    ------
    DataError
        One is lost, or no segment, or no answer came in time.
    """
    descriptions: dict[Any, tuple[int, tuple[Column, ...]]] = {}
    where: dict[Any, list[str]] = {}
    try:
        async with asyncio.timeout(DESCRIBE_S):
            while missing := [key for key in keys if key not in descriptions]:
                if await _ask(peer, what, missing, descriptions, where) and len(descriptions) < len(keys):
                    await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise DataError(
            f"{len(keys) - len(descriptions)} of {len(keys)} partitions of {what} were not told of within "
            f"{DESCRIBE_S:g} s.",
            "Dask workers are busy, or the partitions are being computed again.",
        ) from None
    return descriptions, where


async def _ask(
    peer: Peer,
    what: str,
    missing: list[Any],
    descriptions: dict[Any, tuple[int, tuple[Column, ...]]],
    where: dict[Any, list[str]],
) -> bool:
    """Ask for what is missing, as soon as some of it is in memory; whether any was."""
    answer = await peer.ask("train_run_who_has", keys=missing, timeout_s=peer.poll_s)
    if answer["lost"]:
        raise lost(what)
    by_address: dict[str, list[Any]] = {}
    holders = {key: list(addresses) for key, addresses in answer["where"]}
    for key, addresses in holders.items():
        if addresses:
            by_address.setdefault(addresses[0], []).append(key)
    answers = await asyncio.gather(
        *(peer.on_workers(offers.describe, keys, workers=[address]) for address, keys in by_address.items()),
        return_exceptions=True,
    )
    for reply in answers:
        if isinstance(reply, Exception) and not isinstance(reply, OSError | DaskTrainError):
            raise DataError(f"{what}: {reply}.") from reply
        if not isinstance(reply, BaseException):
            for described in reply.values():
                descriptions.update(described)
                where.update((key, holders[key]) for key in described)
    return bool(by_address)


async def cancel(peer: Peer, futures: Sequence[Future]) -> None:
    """Let Dask stop computing results and forget them; returns when it has, or after :data:`FORGET_S`."""
    if not futures:
        return
    keys = [future.key for future in futures]
    await peer.cancel(futures)
    with suppress(TimeoutError):  # of a scheduler that hangs
        async with asyncio.timeout(2 * FORGET_S):
            await peer.ask("train_run_who_has", keys=keys, some=False, timeout_s=FORGET_S)
