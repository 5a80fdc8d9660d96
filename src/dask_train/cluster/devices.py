"""The GPUs that Dask workers can give to role processes, and what ``gpus=`` may be."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Worker

from dask_train.cluster.peer import Peer
from dask_train.process.devices import DeviceUse, VisibleDevice, devices_of_host, visible_devices

# How long Dask workers may take to tell their devices, in seconds; one that does not answer offers none for now. For
# the first half all are asked in one message, whose answer waits for each of them.
ASK_S = 10.0

AUTO = "auto"
# What ``gpus=`` may be besides None, which leaves the choice to the loop.
Gpus = str | int | None


@dataclass(frozen=True, kw_only=True)
class DeviceOffer:
    """The devices of one Dask worker.

    Attributes
    ----------
    devices
        Those that it sees, the first one first.
    num_devices
        How many of them its role processes may use at most: as many as the resource ``GPU`` says, where it is declared.
    is_given
        Whether the cluster gave them to this Dask worker: ``CUDA_VISIBLE_DEVICES`` names them, as dask-cuda and batch
        systems set it, or the Dask worker declares a resource ``GPU``. Else they are just those of its host.
    names
        Model names, in the same order.
    """

    devices: tuple[VisibleDevice, ...] = ()
    num_devices: int = 0
    is_given: bool = False
    names: tuple[str, ...] = ()


async def offer_devices(dask_worker: Worker) -> DeviceOffer:
    """Tell which devices this Dask worker can give to role processes."""
    host = await asyncio.to_thread(devices_of_host)  # a driver in trouble may not answer for minutes
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = tuple(visible_devices(host.devices, variable))
    declared = dask_worker.state.total_resources.get("GPU", 0)
    by_uuid = {device.uuid: device.name for device in host.devices}
    return DeviceOffer(
        devices=seen,
        num_devices=min(len(seen), math.ceil(declared)) if declared else len(seen),
        is_given=bool(seen) and (variable is not None or declared > 0),
        names=tuple(by_uuid.get(device.uuid, device.entry) for device in seen),
    )


def device_environment(use: DeviceUse) -> dict[str, str]:
    """Return the variables that give a child process of this Dask worker its device."""
    seen = visible_devices(devices_of_host().devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return use.environment(os.environ, sees_devices=bool(seen))


def check_gpus(gpus: Any) -> None:
    """Check ``gpus=``.

    Raises
    ------
    ValueError
        It is not one of its values.
    """
    if gpus is None or gpus == AUTO or (isinstance(gpus, int) and not isinstance(gpus, bool) and gpus in (0, 1)):
        return
    raise ValueError(
        f"gpus is {gpus!r}; pass 'auto' for the devices that the cluster gave its Dask workers, 0 for none, or 1 for "
        "one of its own for each role process. More than one per process is not supported: ask for more workers."
    )


async def ask_offers(peer: Peer, addresses: list[str] | None) -> dict[str, DeviceOffer]:
    """Return what these Dask workers offer, or all where ``addresses`` is None; those that are silent are left out.

    One that can't say, for example since dask-train is not installed there, offers nothing.
    """

    async def ask(asked: list[str] | None) -> dict[str, DeviceOffer]:
        asking = peer.on_workers(offer_devices, workers=asked, on_error="return")
        answers = await asyncio.wait_for(asking, ASK_S / 2)
        heard = {address: answer for address, answer in answers.items() if not isinstance(answer, OSError)}
        return {a: answer if isinstance(answer, DeviceOffer) else DeviceOffer() for a, answer in heard.items()}

    async def ask_one(address: str) -> dict[str, DeviceOffer]:
        with suppress(TimeoutError):
            return await ask([address])
        return {}

    with suppress(TimeoutError):
        return await ask(addresses)
    each = await asyncio.gather(*map(ask_one, await peer.workers() if addresses is None else addresses))
    return {address: offer for offers in each for address, offer in offers.items()}


def count_devices(offers: Collection[DeviceOffer], gpus: Gpus) -> int:
    """Return how many devices these Dask workers have for roles."""
    usable = [offer for offer in offers if gpus == 1 or (gpus == AUTO and offer.is_given)]
    distinct = {device.uuid for offer in usable for device in offer.devices}
    return min(len(distinct), sum(offer.num_devices for offer in usable))
