"""Runs as other clients see them: what the scheduler has on record, and messages to a run's driver."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from distributed import Client

from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.errors import StalledError
from dask_train.process.messages import to_plain
from dask_train.run.messages import Stop

# How long the scheduler is waited for.
ANSWER_S = 10.0
# How often one that was asked to stop is looked at.
LOOK_S = 0.2
# Of more runs, an error names the last ones.
MOST_NAMED = 20


def all_runs(client: Client) -> list[dict[str, Any]]:
    """Return the records of the runs that a scheduler knows: the last ones that are over, then live ones.

    Returns
    -------
    list of dict
        ``id``, ``started``, ``ended`` (0 while it lasts) and ``now`` in seconds by the scheduler's clock; ``info``
        (what was asked for) and ``summary`` (what the driver said last, see ``Driver.summary``).

    Raises
    ------
    StalledError, RoleLostError
        The scheduler does not answer.
    """
    answer = client.sync(ask, client, "train_runs")
    return [dict(record) for record in answer["runs"]]


def find_run(client: Client, name: str) -> dict[str, Any]:
    """Return the record of one run.

    Parameters
    ----------
    client
        Of the scheduler.
    name
        The run's name, or a beginning that no other has.

    Raises
    ------
    ValueError
        There is no such run, or several.
    StalledError, RoleLostError
        The scheduler does not answer.
    """
    return _found(name, client.sync(ask, client, "train_run_show", run=name, output=False))


def stop_run(client: Client, name: str, reason: str, timeout_s: float = 15.0) -> tuple[dict[str, Any], bool]:
    """End a run in order, as its own ``stop`` does, and wait until it is over.

    Returns
    -------
    dict, bool
        Its record, and whether it was over before.

    Raises
    ------
    ValueError
        There is no such run, or several.
    StalledError
        It is not over after ``timeout_s``, or the scheduler does not answer.
    RoleLostError
        The scheduler does not answer.
    """
    word = to_plain(Stop(reason=reason))
    record = _found(name, client.sync(ask, client, "train_run_say", run=name, event=word))
    if record["ended"]:
        return record, True
    deadline = time.monotonic() + timeout_s
    while not record["ended"]:
        if time.monotonic() > deadline:
            raise StalledError(
                f"Run {record['id']} was asked to stop, and is not over after {timeout_s:g} s: it is "
                f"{record['summary'].get('phase', 'starting')}.",
                "Its client does not answer, or its train.stop.timeout is longer.",
                "Wait, or end the process that started it.",
            )
        time.sleep(LOOK_S)
        record = find_run(client, record["id"])
    return record, False


async def ask(client: Client, handler: str, **message: Any) -> dict[str, Any]:
    """Ask our plug-in on the scheduler; one that had none yet gets it, and has no runs.

    Raises
    ------
    StalledError, RoleLostError
        The scheduler does not answer.
    """
    peer = Peer(client)
    try:
        async with asyncio.timeout(ANSWER_S):
            await ensure_plugin(peer)
            return await peer.ask(handler, **message)
    except TimeoutError as error:
        raise StalledError(
            f"The scheduler did not answer {handler} within {ANSWER_S:g} s.",
            "It is busy or stopped.",
            "Look at its process and its log.",
        ) from error


def _found(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    if answer["status"] == "OK":
        return answer
    alike = [run for run in answer["runs"] if run.startswith(name)]
    if alike:
        raise ValueError(f"{len(alike)} runs begin with {name!r}: {_named(alike)}. Give more of the name.")
    there = f"it has {_named(answer['runs'])}" if answer["runs"] else "it has no runs"
    raise ValueError(f"The scheduler has no run {name!r}; {there}.")


def _named(runs: list[str]) -> str:
    more = f"{len(runs) - MOST_NAMED} older ones, " if len(runs) > MOST_NAMED else ""
    return more + ", ".join(runs[-MOST_NAMED:])
