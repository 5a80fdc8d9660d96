"""Which GPUs a run asks for, and what it tells of those that it was given."""

from __future__ import annotations

from typing import Any

import pytest

from dask_train.cluster.devices import DeviceOffer
from dask_train.driver.devices import RunDevices
from dask_train.process.devices import NO_DEVICE, DeviceUse, VisibleDevice

GIVEN = DeviceOffer(
    devices=(VisibleDevice(uuid="GPU-x", entry="1"), VisibleDevice(uuid="GPU-y", entry="0")),
    num_devices=2,
    is_given=True,
    names=("H100", "H100"),
)
PLAIN = DeviceOffer(devices=(VisibleDevice(uuid="GPU-z", entry="GPU-z"),), num_devices=1, names=("H200",))
NONE = DeviceOffer()
WORKERS = {"given": GIVEN, "plain": PLAIN, "none": NONE}


class Peer:
    """A client of a cluster of some of these Dask workers, of which those of ``silent`` don't answer."""

    def __init__(self, *there: str) -> None:
        self.there, self.silent = list(there), set[str]()
        self.asked: list[list[str]] = []

    async def workers(self) -> dict[str, Any]:
        return dict.fromkeys(self.there)

    async def on_workers(self, _: Any, *, workers: list[str], on_error: str) -> dict[str, DeviceOffer]:
        assert on_error == "return"
        self.asked.append(workers)
        return {address: WORKERS[address] for address in workers if address not in self.silent}


class Told:
    """The devices of a run on some Dask workers, and the notices that they gave."""

    def __init__(self, gpus: Any, *there: str) -> None:
        self.notices: list[str] = []
        self.peer = Peer(*there)
        self.devices = RunDevices(self.peer, gpus, ["worker"], self.notices.append)


async def test_nobody_is_asked_at_an_address_without_dask_worker():
    told = Told("auto", "given", "plain")
    assert (await told.devices.request(["gone", "given"]))["offers"] == {"given": [["GPU-x", "GPU-y"], 2]}
    assert told.peer.asked == [["given"]]


async def test_auto_asks_for_what_the_cluster_gave():
    told = Told("auto", "given", "plain")
    assert await told.devices.request(None) == {
        "roles": ["worker"],
        "may_share": True,
        "offers": {"given": [["GPU-x", "GPU-y"], 2]},
    }
    told.devices.placed({("worker", 0): "GPU-y", ("ps", 0): ""})
    assert told.devices.use_of(("worker", 0), "given") == DeviceUse(entry="0")
    assert told.devices.use_of(("ps", 0), "given") == DeviceUse(entry=NO_DEVICE)
    assert told.notices == []


async def test_auto_on_a_plain_cluster_takes_none_and_says_so_once():
    told = Told("auto", "plain", "none")
    assert [await told.devices.request(None) for _ in range(2)] == [None, None]
    assert told.devices.use_of(("worker", 0), "plain") == DeviceUse(entry=NO_DEVICE)
    assert told.devices.use_of(("worker", 1), "none") == DeviceUse()
    (notice,) = told.notices
    assert notice.startswith("The cluster's hosts have GPUs (1 x H200) that were given to no Dask worker")
    assert "gpus=1" in notice


async def test_a_cluster_without_devices_is_told_nothing():
    told = Told("auto", "none")
    assert (await told.devices.request(None), told.notices) == (None, [])
    assert told.devices.use_of(("worker", 0), "none") == DeviceUse()


async def test_auto_does_not_change_its_mind_when_a_role_starts_again():
    told = Told("auto", "given")
    assert await told.devices.request(None) is not None
    told.peer.there = ["plain"]
    again = await told.devices.request(None)
    assert again is not None
    assert "plain" not in again["offers"]
    told = Told("auto", "plain")
    await told.devices.request(None)
    told.peer.there.append("given")
    assert await told.devices.request(None) is None


async def test_auto_is_decided_when_a_dask_worker_has_answered():
    told = Told("auto")
    assert (await told.devices.request(None), told.devices.waits_for) == (None, "There is no Dask worker.")
    told.peer.there, told.peer.silent = ["given"], {"given"}
    assert await told.devices.request(None) is None
    assert told.devices.waits_for == "No Dask worker has said yet which GPUs it has."
    assert await told.devices.request(["gone"]) is None
    assert told.devices.waits_for == "", "the scheduler says that there is no such Dask worker"


async def test_auto_takes_devices_of_dask_workers_that_come_later():
    told = Told("auto")
    assert await told.devices.request(None) is None
    told.peer.there = ["given"]
    assert (await told.devices.request(None))["offers"] == {"given": [["GPU-x", "GPU-y"], 2]}
    assert (told.devices.waits_for, told.notices) == ("", [])


async def test_one_asks_for_any_that_a_host_has_and_shares_none():
    told = Told(1, "plain", "none")
    asked = await told.devices.request(["plain"])
    assert asked == {"roles": ["worker"], "may_share": False, "offers": {"plain": [["GPU-z"], 1]}}
    assert told.peer.asked == [["plain"]]
    told.devices.placed({("worker", 0): "GPU-z"})
    assert told.devices.use_of(("worker", 0), "plain") == DeviceUse(entry="GPU-z")


async def test_each_dask_worker_is_asked_once_and_those_that_come_later_too():
    told = Told(1, "plain")
    await told.devices.request(None)
    told.peer.there += ["none", "given"]
    told.peer.silent.add("given")
    await told.devices.request(None)
    told.peer.silent.clear()
    asked = await told.devices.request(None)
    assert told.peer.asked == [["plain"], ["none", "given"], ["given"]]
    assert sorted(asked["offers"]) == ["given", "none", "plain"]


@pytest.mark.parametrize(("gpus", "use"), [(0, DeviceUse(entry=NO_DEVICE)), (None, DeviceUse())])
async def test_none_and_whatever_there_is_ask_for_nothing(gpus, use):
    told = Told(gpus, "given")
    assert (await told.devices.request(None), told.peer.asked) == (None, [])
    assert told.devices.use_of(("worker", 0), "given") == use


async def test_roles_that_share_a_device_are_told_once_and_each_knows_of_the_others():
    told = Told("auto", "given")
    await told.devices.request(None)
    told.devices.placed({("worker", 0): "GPU-x", ("worker", 1): "GPU-x", ("worker", 2): "GPU-y"})
    told.devices.placed({("worker", 1): "GPU-x"})
    (notice,) = told.notices
    assert notice.startswith("3 roles share 2 GPUs")
    assert told.devices.use_of(("worker", 1), "given") == DeviceUse(entry="1", num_sharing=2)
    assert told.devices.use_of(("worker", 2), "given") == DeviceUse(entry="0")


async def test_a_role_on_a_dask_worker_that_did_not_answer_sees_no_device():
    told = Told("auto", "none")
    await told.devices.request(None)
    assert told.devices.use_of(("worker", 0), "another") == DeviceUse(entry=NO_DEVICE)
