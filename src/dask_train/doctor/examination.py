"""Asks every process of a cluster about its condition, each with a deadline; judges nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from distributed import Client
from distributed.comm import get_address_host

from dask_train.cluster import installed as environment
from dask_train.cluster.by_value import ByValue
from dask_train.cluster.peer import Peer
from dask_train.doctor import device_probe, health_probe
from dask_train.doctor.examined import Clock, Examination, Route
from dask_train.doctor.health_probe import HealthProbe, TemplateProbe
from dask_train.errors import DaskTrainError
from dask_train.process import memory_limit
from dask_train.scheduler.plugin import TrainPlugin

# How long each process is waited for.
ANSWER_S = 10.0

# How long frameworks may take to be imported and to look for GPUs.
SIGHT_S = 60.0

# Most questions at a time, so that the scheduler's own work continues in a large cluster.
_AT_ONCE = 64

# A ring over this many hosts is tried: enough to find a firewall, not a test of the whole network.
_MOST_HOSTS = 8
_CONNECT_S = 3.0


def examine(client: Client) -> Examination:
    """Return the condition of the client's cluster; takes up to three times ``ANSWER_S`` where processes don't answer.

    Raises
    ------
    RoleLostError
        The scheduler does not answer.
    """
    result: Examination = Peer(client).run(_examine, Peer(client))
    return result


def examine_templates(client: Client) -> dict[str, list[TemplateProbe]]:
    """Return the template processes of each Dask worker that has some, and tells so within ``ANSWER_S``.

    Raises
    ------
    RoleLostError
        The scheduler does not answer.
    """
    probes_by_address: dict[str, list[TemplateProbe]] = Peer(client).run(_examine_templates, Peer(client))
    return probes_by_address


async def _examine_templates(peer: Peer) -> dict[str, list[TemplateProbe]]:
    addresses = await peer.workers()
    tell_templates = ByValue(health_probe.tell_templates, health_probe)
    answers = await asyncio.gather(
        *(_answer(peer.on_workers(tell_templates, workers=[address])) for address in addresses)
    )
    probes_by_address = {
        address: probes for answer in answers if not isinstance(answer, str) for address, probes in answer.items()
    }
    return {address: probes for address, probes in probes_by_address.items() if probes}


def examine_here() -> Examination:
    """Return the condition of this process and machine alone."""
    here = asyncio.run(health_probe.tell(environment.installed_versions, memory_limit.limit_and_use))
    sights = {here["host"]: asyncio.run(device_probe.see(SIGHT_S))} if here["gpus"] else {}
    return Examination(address="", here=here, sights=sights)


async def _examine(peer: Peer) -> Examination:
    here = await health_probe.tell(environment.installed_versions, memory_limit.limit_and_use)
    identity = await peer.call("identity", n_workers=-1)
    scheduler = await _ask_scheduler(peer)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(address: str) -> tuple[HealthProbe, Clock] | str:
        async with turns:
            return await _ask(peer, address)

    addresses = list(identity["workers"])
    answers = dict(zip(addresses, await asyncio.gather(*map(ask, addresses)), strict=True))
    answered = {address: answer for address, answer in answers.items() if not isinstance(answer, str)}
    workers = {address: answer[0] for address, answer in answered.items()}
    return Examination(
        address=str(identity["address"]),
        here=here,
        scheduler=scheduler,
        workers=workers,
        clocks={address: answer[1] for address, answer in answered.items()},
        silent={address: answer for address, answer in answers.items() if isinstance(answer, str)},
        routes=tuple(await asyncio.gather(*(_try(peer, to, start) for to, start in _ring(workers)))),
        sights=await _ask_for_sights(peer, workers),
    )


async def _ask_for_sights(peer: Peer, workers: dict[str, HealthProbe]) -> dict[str, dict[str, str] | str]:
    """Return whether frameworks use GPUs, of one Dask worker of each host that has some."""
    address_by_host = {probe["host"]: address for address, probe in workers.items() if probe["gpus"]}
    see = ByValue(device_probe.see, device_probe)
    answers = await asyncio.gather(
        *(_answer(peer.on_workers(see, SIGHT_S, workers=[one]), SIGHT_S + ANSWER_S) for one in address_by_host.values())
    )
    return {
        host: answer if isinstance(answer, str) else answer[one]
        for (host, one), answer in zip(address_by_host.items(), answers, strict=True)
    }


async def _answer(waiting: Awaitable[Any], timeout_s: float | None = None) -> Any:
    """Return what was waited for, or why there is none, as text."""
    timeout_s = ANSWER_S if timeout_s is None else timeout_s  # tests have less patience
    try:
        async with asyncio.timeout(timeout_s):
            return await waiting
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (DaskTrainError, OSError) as error:
        return str(error)
    except Exception as error:  # what the function raised there, of whatever kind, is what we want to know
        return f"{type(error).__name__}: {error}"


async def _ask(peer: Peer, address: str) -> tuple[HealthProbe, Clock] | str:
    versions = ByValue(environment.installed_versions, environment)
    sent_at = time.time()
    memory = ByValue(memory_limit.limit_and_use, memory_limit)
    answer = await _answer(
        peer.on_workers(ByValue(health_probe.tell, health_probe), versions, memory, workers=[address])
    )
    back_at = time.time()
    if isinstance(answer, str):
        return answer
    probe: HealthProbe = answer[address]
    return probe, Clock.compared(sent_at, probe["asked_at"], probe["answered_at"], back_at)


async def _ask_scheduler(peer: Peer) -> tuple[dict[str, str], bool] | str:
    answer: tuple[dict[str, str], bool] | str = await _answer(
        peer.on_scheduler(
            ByValue(health_probe.tell_scheduler, health_probe),
            ByValue(environment.installed_versions, environment),
            TrainPlugin.name,
        )
    )
    return answer


def _ring(workers: dict[str, HealthProbe]) -> list[tuple[str, str]]:
    """Return which Dask worker listens and which connects: each host's first to the next host's, round to the first."""
    first: dict[str, str] = {}
    for address, probe in workers.items():
        first.setdefault(probe["host"], address)
    ends = list(first.values())[:_MOST_HOSTS]
    if len(ends) == 1:
        return [(ends[0], list(workers)[-1])]
    return [(end, ends[i - 1]) for i, end in enumerate(ends)]


async def _try(peer: Peer, to: str, start: str) -> Route:
    """Let one Dask worker listen and another connect to it."""
    host = get_address_host(to)
    opened = await _answer(
        peer.on_workers(ByValue(health_probe.open_port, health_probe), host, ANSWER_S + _CONNECT_S, workers=[to])
    )
    if isinstance(opened, str):
        return Route(start=start, to=to, problem=f"no port can be opened there: {opened}")
    reached = await _answer(
        peer.on_workers(ByValue(health_probe.reach, health_probe), host, opened[to], _CONNECT_S, workers=[start])
    )
    return Route(start=start, to=to, problem=reached if isinstance(reached, str) else reached[start])
