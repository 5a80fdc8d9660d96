"""What segments in Dask's memory are: asked of the Dask workers that hold them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from distributed import Future

from dask_train.cluster.on_worker import offers
from dask_train.cluster.peer import Peer
from dask_train.data.columns import Column
from dask_train.errors import DaskTrainError, DataError

# How long Dask workers may take to tell, and between two looks for segments that were moved meanwhile.
DESCRIBE_S = 30.0
LOOK_AGAIN_S = 0.1
# How long the scheduler may take to forget what nobody wants any more; it is told so by a client now and then.
FORGET_S = 1.0


async def check_computed(future: Future, what: str) -> None:
    """See that a partition that is done is there.

    Raises
    ------
    DataError
        It could not be computed, or was released.
    """
    if future.status == "error":
        error = await future._exception()
        raise DataError(
            f"A partition of {what} can't be computed: {type(error).__name__}: {str(error).rstrip('.')}.",
            change="Mend what computes it: its traceback is the cause of this error.",
        ) from error
    if future.status != "finished":
        raise lost(what)


def lost(what: str) -> DataError:
    """The error for a partition that is not there, and that Dask will not compute again."""
    return DataError(
        f"A partition of {what} is lost, and can't be computed again.",
        "What it is computed from is gone: it was scattered to a Dask worker that has left, or somebody cancelled it.",
        "Compute it in tasks, which Dask repeats, in place of client.scatter; or scatter it again.",
    )


async def describe(
    peer: Peer, what: str, keys: Sequence[Any]
) -> tuple[dict[Any, tuple[int, tuple[Column, ...]]], dict[Any, str]]:
    """Rows and columns of segments, and the address of a Dask worker that holds each.

    Raises
    ------
    DataError
        One is lost, or no segment, or nobody told in time.
    """
    found: dict[Any, tuple[int, tuple[Column, ...]]] = {}
    homes: dict[Any, str] = {}
    try:
        async with asyncio.timeout(DESCRIBE_S):
            while missing := [key for key in keys if key not in found]:
                await _ask(peer, what, missing, found, homes)
                if len(found) < len(keys):
                    await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise DataError(
            f"{len(keys) - len(found)} of {len(keys)} partitions of {what} were not told of within {DESCRIBE_S:g} s.",
            "Dask workers are busy, or the partitions are being computed again.",
        ) from None
    return found, homes


async def _ask(
    peer: Peer,
    what: str,
    missing: list[Any],
    found: dict[Any, tuple[int, tuple[Column, ...]]],
    homes: dict[Any, str],
) -> None:
    answer = await peer.ask("train_run_who_has", keys=missing)
    if answer["lost"]:
        raise lost(what)
    by_address: dict[str, list[Any]] = {}
    for key, addresses in answer["where"]:
        if addresses:
            by_address.setdefault(addresses[0], []).append(key)
    answers = await asyncio.gather(
        *(peer.on_workers(offers.describe, keys, workers=[address]) for address, keys in by_address.items()),
        return_exceptions=True,
    )
    for told in answers:
        if isinstance(told, Exception) and not isinstance(told, OSError | DaskTrainError):
            raise DataError(f"{what}: {told}.") from told
        if not isinstance(told, BaseException):
            for address, described in told.items():
                found.update(described)
                homes.update(dict.fromkeys(described, address))


async def cancel(peer: Peer, futures: Sequence[Future]) -> None:
    """Let Dask stop computing results and forget them; returns when it has, or after :data:`FORGET_S`."""
    if not futures:
        return
    keys = [future.key for future in futures]
    await peer.dask_end._cancel(futures)
    with suppress(TimeoutError):
        async with asyncio.timeout(FORGET_S):
            while any(addresses for _, addresses in (await peer.ask("train_run_who_has", keys=keys))["where"]):
                await asyncio.sleep(0.01)
