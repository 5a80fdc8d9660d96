"""What a Dask worker offers, and what ``gpus=`` may be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_train.cluster import devices
from dask_train.cluster.devices import (
    DeviceOffer,
    ask_offers,
    check_gpus,
    count_devices,
    device_environment,
    offer_devices,
)
from dask_train.process.devices import DeviceUse, HostDevices, VisibleDevice
from dask_train.testing.nvml import fake_devices

TWO = fake_devices(2)
X, Y = (device.uuid for device in TWO)


@pytest.fixture
def offered(monkeypatch):
    """What a Dask worker offers on a host with two devices, by its environment and what it declares."""
    monkeypatch.setattr(devices, "devices_of_host", lambda: HostDevices(devices=tuple(TWO)))

    def offer(visible: str | None = None, **declared: float) -> DeviceOffer:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        worker: Any = SimpleNamespace(state=SimpleNamespace(total_resources=declared))
        return asyncio.run(offer_devices(worker))

    return offer


def test_devices_of_a_host_are_seen_and_not_given(offered):
    found = offered()
    assert [device.uuid for device in found.devices] == [X, Y]
    assert (found.is_given, found.num_devices, found.names) == (False, 2, (TWO[0].name, TWO[1].name))


def test_devices_are_given_by_dask_cuda_or_a_batch_system(offered):
    found = offered("1,0")
    assert [device.uuid for device in found.devices] == [Y, X]
    assert (found.is_given, found.num_devices) == (True, 2)
    assert offered("").is_given is False
    assert offered("MIG-a").names == ("MIG-a",)


def test_devices_are_given_by_a_declared_resource_as_many_as_it_says(offered):
    assert (offered(GPU=1).is_given, offered(GPU=1).num_devices) == (True, 1)
    assert offered(GPU=0.5).num_devices == 1
    assert offered(GPU=8).num_devices == 2
    assert offered(memory=8).is_given is False


def test_a_child_process_has_the_device_in_its_environment(offered):
    offered()
    assert device_environment(DeviceUse(entry=Y))["CUDA_VISIBLE_DEVICES"] == Y
    assert device_environment(DeviceUse()) == {"KERAS_TORCH_DEVICE": "cuda"}
    offered("-1")
    assert device_environment(DeviceUse()) == {}


@pytest.mark.parametrize("gpus", [True, False, 2, -1, 1.0, "all", "1", [0], np.int64(1)])
def test_gpus_is_auto_or_none_or_one_of_its_own(gpus):
    with pytest.raises(ValueError, match=r"^gpus is .*; pass 'auto' for .* ask for more workers\.$"):
        check_gpus(gpus)


def test_what_gpus_may_be():
    for gpus in (None, "auto", 0, 1):
        check_gpus(gpus)


def test_workers_are_counted_by_the_devices_that_they_would_get():
    same = DeviceOffer(devices=(VisibleDevice(uuid=X, entry=X), VisibleDevice(uuid=Y, entry=Y)), num_devices=2)
    given = DeviceOffer(devices=same.devices, num_devices=1, is_given=True)
    assert count_devices([same, same], 1) == 2, "one host's are the same for both"
    assert count_devices([same], "auto") == 0
    assert count_devices([given, same], "auto") == 1
    assert count_devices([given, given, given], "auto") == 2
    assert count_devices([same], 0) == 0


def test_dask_workers_that_do_not_answer_offer_nothing(monkeypatch):
    async def never(*_: Any, **__: Any) -> dict[str, DeviceOffer]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(devices, "ASK_S", 0.01)

    async def workers() -> dict[str, Any]:
        return {"a": {}}

    peer: Any = SimpleNamespace(on_workers=never, workers=workers)
    assert asyncio.run(ask_offers(peer, None)) == {}


def test_a_dask_worker_that_can_not_say_offers_nothing_and_one_that_can_not_be_reached_is_silent():
    async def on_workers(*_: Any, **__: Any) -> dict[str, Any]:
        return {"a": ModuleNotFoundError("No module named 'dask_train'"), "b": OSError("no way there")}

    peer: Any = SimpleNamespace(on_workers=on_workers)
    assert asyncio.run(ask_offers(peer, None)) == {"a": DeviceOffer()}


@pytest.mark.parametrize("addresses", [None, ["a", "b"]])
def test_only_those_that_do_not_answer_are_left_out(monkeypatch, addresses):
    async def on_workers(_: Any, *, workers: list[str] | None, **__: Any) -> dict[str, DeviceOffer]:
        if "b" in (workers or ["a", "b"]):
            await asyncio.Event().wait()
        return {"a": DeviceOffer()}

    async def workers() -> dict[str, Any]:
        return {"a": {}, "b": {}}

    monkeypatch.setattr(devices, "ASK_S", 0.01)
    peer: Any = SimpleNamespace(on_workers=on_workers, workers=workers)
    assert asyncio.run(ask_offers(peer, addresses)) == {"a": DeviceOffer()}
