"""Who has which room, and who waits for some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.scheduler.devices import DeviceRequest, Offer
from dask_train.scheduler.placement_queue import PlacementQueue, PlacementRequest
from dask_train.scheduler.runs import KnownRun, Runs


class Cluster:
    """A placement_queue on a scheduler, and runs ``r1``, ``r2``... that ask for workers."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.runs = Runs()
        self.placement_queue = PlacementQueue(scheduler, self.runs)

    def run(self, name: str) -> KnownRun:
        return self.runs.by_id.setdefault(name, KnownRun(name, "me", {}))

    def request(
        self, name: str, count: int, *, on: list[str] | None = None, first: int = 0, **needs: float
    ) -> PlacementRequest:
        """Room for workers of a run, from rank ``first`` on."""
        wanted = [(("worker", first + rank), dict(needs)) for rank in range(count)]
        return PlacementRequest(self.run(name), wanted, on)

    def ask(self, name: str, count: int, **more: Any) -> PlacementRequest:
        request = self.request(name, count, **more)
        assert self.placement_queue.ask(request) == ""
        return request

    def granted(self, name: str, count: int, **more: Any) -> list[str]:
        request = self.ask(name, count, **more)
        assert request.changed.is_set() == bool(request.granted)
        return list(request.granted.values())


@pytest.fixture
def cluster(a_scheduler):
    """Three Dask workers with two threads each."""
    return Cluster(a_scheduler(a=2, b=2, c=2))


def test_all_or_none(cluster):
    assert sorted(cluster.granted("r1", 4)) == ["a", "a", "b", "c"]
    waiting = cluster.ask("r2", 3)
    assert (waiting.granted, waiting.changed.is_set(), cluster.run("r2").places) == ({}, False, {})
    assert cluster.placement_queue.why(waiting) == (
        "3 roles need as many free threads, and 2 of 6 are free. a carries 2 roles of r1. b carries 1 role of r1. "
        "c carries 1 role of r1."
    )


def test_first_come_first_served(cluster):
    cluster.ask("r1", 5)
    large, small = cluster.ask("r2", 4), cluster.ask("r3", 1)
    assert not large.granted
    assert not small.granted, "it does not overtake"
    assert cluster.placement_queue.why(small).endswith("1 other runs are first in line.")
    assert "first in line" not in cluster.placement_queue.why(large)
    cluster.placement_queue.free(cluster.run("r1"))
    assert (len(large.granted), len(small.granted)) == (4, 1)
    assert large.changed.is_set()
    assert small.changed.is_set()


def test_what_one_role_gives_back_serves_the_next(cluster):
    cluster.ask("r1", 6)
    waiting = cluster.ask("r2", 1)
    cluster.placement_queue.free(cluster.run("r1"), [("worker", 5)])
    assert len(waiting.granted) == 1
    assert len(cluster.run("r1").places) == 5


def test_a_request_that_is_given_up_lets_the_next_one_through(cluster):
    cluster.ask("r1", 5)
    large, small = cluster.ask("r2", 4), cluster.ask("r3", 1)
    cluster.placement_queue.free(cluster.run("r2"), [("worker", 0)])
    assert (large.granted, large.changed.is_set()) == ({}, True)
    assert small.granted


def test_what_one_role_gives_back_leaves_the_request_for_another(cluster):
    cluster.ask("r1", 6)
    del cluster.scheduler.workers["c"]
    request = cluster.ask("r1", 1, first=5)
    assert not request.granted
    cluster.placement_queue.free(cluster.run("r1"), [("worker", 0)])
    assert request.granted


def test_a_dask_worker_that_comes_serves_who_waits(cluster):
    waiting = cluster.ask("r1", 3, on=["a"])
    assert len(waiting.granted) == 3, "shared"
    waiting = cluster.ask("r2", 6)
    cluster.scheduler.add("d", 2)
    cluster.placement_queue.serve()
    assert len(waiting.granted) == 6


# Recovery


def test_a_lost_role_is_replaced_before_others_start(cluster):
    cluster.ask("r1", 6)
    others = cluster.ask("r2", 1)
    lost = cluster.run("r1").places["worker", 5][0]
    again = cluster.ask("r1", 1, first=5)
    assert list(again.granted.values()) == [lost]
    assert not others.granted, "the room was not theirs in between"


def test_a_gang_that_starts_again_keeps_its_turn(cluster):
    cluster.ask("r1", 6)
    others = cluster.ask("r2", 6)
    again = cluster.ask("r1", 6)
    assert len(again.granted) == 6
    assert not others.granted


def test_a_gang_that_starts_again_gets_the_dask_workers_that_it_had(cluster):
    before = cluster.ask("r0", 2)
    cluster.ask("r1", 2)
    had = dict(cluster.run("r1").places)
    cluster.placement_queue.free(cluster.run("r0"))
    again = cluster.ask("r1", 2)
    assert before.granted
    assert again.granted == {key: address for key, (address, _) in had.items()}


def test_a_gang_that_has_to_wait_is_first_in_line(cluster):
    cluster.ask("r0", 2, on=["a"])
    cluster.ask("r1", 4)
    others = cluster.ask("r2", 1)
    del cluster.scheduler.workers["c"]
    again = cluster.ask("r1", 4)
    assert cluster.placement_queue.waiting == [again, others]
    assert not others.granted, "though there is room for it"
    cluster.placement_queue.free(cluster.run("r0"))
    assert len(again.granted) == 4
    assert not others.granted


def test_a_gang_takes_the_place_of_the_role_that_it_was_waiting_for(cluster):
    cluster.ask("r1", 6)
    del cluster.scheduler.workers["c"]
    role = cluster.ask("r1", 1, first=5)
    assert not role.granted
    cluster.scheduler.add("d", 2)
    again = cluster.ask("r1", 6)
    assert (role.granted, role.changed.is_set()) == ({}, True)
    assert len(again.granted) == 6
    assert cluster.placement_queue.waiting == []


def test_a_run_that_shares_threads_gets_its_lost_role_again(a_scheduler):
    cluster = Cluster(a_scheduler(a=1, b=1))
    assert len(cluster.granted("r1", 4)) == 4
    assert len(cluster.granted("r1", 1, first=2)) == 1
    assert not cluster.ask("r2", 3).granted, "never beside another run"


def test_a_run_that_does_not_share_waits_for_a_dask_worker_that_comes_again(cluster):
    cluster.ask("r1", 6)
    del cluster.scheduler.workers["c"]
    lost = [(key, {}) for key, (address, _) in cluster.run("r1").places.items() if address == "c"]
    again = PlacementRequest(cluster.run("r1"), lost, None)
    assert cluster.placement_queue.ask(again) == ""
    assert not again.granted
    cluster.scheduler.add("d", 2)
    cluster.placement_queue.serve()
    assert set(again.granted.values()) == {"d"}


# What else uses the Dask workers


def test_what_can_never_be_is_not_put_in_line(cluster):
    cluster.scheduler.workers["a"].resources = {"GPU": 1}
    assert cluster.placement_queue.ask(cluster.request("r1", 1, GPU=2)) == "no Dask worker declares GPU=2"
    assert cluster.placement_queue.waiting == []


def test_resources_of_tasks_and_of_roles_count(cluster):
    cluster.scheduler.workers["a"].resources = {"GPU": 3}
    cluster.scheduler.workers["a"].used_resources = {"GPU": 1}
    assert cluster.granted("r1", 1, GPU=1) == ["a"]
    assert cluster.placement_queue.capacities(["a"])[0].resources == {"GPU": 1}
    assert cluster.granted("r2", 1, GPU=1) == ["a"]
    waiting = cluster.ask("r3", 1, GPU=1)
    assert "0 GPU left." in cluster.placement_queue.why(waiting)
    cluster.placement_queue.free(cluster.run("r1"))
    assert waiting.granted


def test_none_of_a_resource_needs_no_dask_worker_that_declares_it(cluster):
    assert cluster.granted("r1", 1, GPU=0) == ["a"]
    assert cluster.granted("r2", 1) == ["b"], "others are served as well"


def test_only_the_dask_workers_that_were_named(cluster):
    assert set(cluster.granted("r1", 2, on=["b", "gone"])) == {"b"}
    assert not cluster.ask("r2", 1, on=["b"]).granted


def test_dask_workers_that_take_none_say_why(cluster):
    cluster.scheduler.workers["a"].status.name = "paused"
    cluster.scheduler.workers["a"].metrics["memory"] = 84
    others = {"b": "carries network n1"}
    cluster.scheduler.plugins["another"] = SimpleNamespace(why_taken=lambda address: others.get(address, ""))
    cluster.scheduler.extensions["multi_locks"]._request_locks(["c"], "xgboost", 1)
    assert [room.why_not for room in cluster.placement_queue.capacities(None)] == [
        "is paused (memory at 84%)",
        "carries network n1",
        "is locked by another library, such as xgboost.dask",
    ]
    waiting = cluster.ask("r1", 1)
    assert "c is locked by another library, such as xgboost.dask." in cluster.placement_queue.why(waiting)
    cluster.scheduler.extensions["multi_locks"].release("xgboost")
    cluster.placement_queue.serve()
    assert list(waiting.granted.values()) == ["c"]


def test_the_lock_of_a_dask_worker_is_held_while_it_carries_a_role(cluster):
    cluster.ask("r1", 1, on=["a"])
    cluster.ask("r2", 1, on=["a"])
    assert cluster.scheduler.locked == {"a": ["train-roles-on-a"]}
    cluster.placement_queue.free(cluster.run("r1"))
    assert cluster.scheduler.locked == {"a": ["train-roles-on-a"]}
    assert not cluster.scheduler.extensions["multi_locks"]._request_locks(["a"], "xgboost", 1), "it waits"
    cluster.scheduler.extensions["multi_locks"].events["xgboost"] = woken = SimpleNamespace(set=lambda: got.append(1))
    got: list[int] = []
    cluster.placement_queue.free(cluster.run("r2"))
    assert cluster.scheduler.locked == {"a": ["xgboost"]}
    assert (got, bool(woken)) == ([1], True)
    assert not cluster.ask("r3", 1, on=["a"]).granted


def test_the_lock_of_a_dask_worker_that_left_is_released(cluster):
    cluster.ask("r1", 6)
    del cluster.scheduler.workers["c"]
    cluster.placement_queue.free(cluster.run("r1"))
    assert cluster.scheduler.locked == {}
    assert cluster.placement_queue.carrying() == set()


def test_a_role_that_was_never_placed_gives_nothing_back(cluster):
    cluster.ask("r1", 1)
    cluster.placement_queue.free(cluster.run("r1"), [("worker", 7)])
    assert len(cluster.run("r1").places) == 1


# Devices


def with_devices(cluster: Cluster, name: str, count: int, devices: str, **more: Any) -> PlacementRequest:
    """Workers of a run that need one of these devices each, all of which each Dask worker sees."""
    request = cluster.request(name, count, **more)
    offers = dict.fromkeys("abc", Offer(tuple(devices), len(devices)))
    request.devices = DeviceRequest(frozenset({"worker"}), may_share=False, offers=offers)
    return request


def test_a_device_is_given_once_in_the_cluster_and_again_when_its_run_is_over(cluster):
    first, second = with_devices(cluster, "r1", 2, "xyz"), with_devices(cluster, "r2", 2, "xyz")
    assert (cluster.placement_queue.ask(first), cluster.placement_queue.ask(second)) == ("", "")
    assert sorted(cluster.run("r1").devices.values()) == ["x", "y"]
    assert not second.granted
    assert cluster.placement_queue.why(second).endswith("2 of them need a GPU, and 2 GPUs are used by other runs.")
    cluster.placement_queue.free(cluster.run("r1"))
    assert (cluster.run("r1").devices, len(second.granted)) == ({}, 2)


def test_a_lost_role_gets_its_device_again(cluster):
    assert cluster.placement_queue.ask(with_devices(cluster, "r1", 2, "xy")) == ""
    lost = cluster.run("r1").devices["worker", 1]
    assert cluster.placement_queue.ask(with_devices(cluster, "r1", 1, "xy", first=1)) == ""
    assert cluster.run("r1").devices["worker", 1] == lost


def test_more_devices_than_there_are_can_never_be_given(cluster):
    assert cluster.placement_queue.ask(with_devices(cluster, "r1", 2, "x")) == (
        "2 roles need a GPU each, and the Dask workers have 1 GPU"
    )
    assert cluster.placement_queue.waiting == []


def test_room_on_one_host_is_on_no_other(cluster):
    for address, worker in cluster.scheduler.workers.items():
        worker.host = f"host of {address}"
    found, more = cluster.request("r1", 2), cluster.request("r1", 1, first=2)
    found.host = more.host = "host of b"
    for request in (found, more):
        assert cluster.placement_queue.ask(request) == ""
    assert (list(found.granted.values()), more.granted) == (["b", "b"], {})
    assert "0 of 2 are free" in cluster.placement_queue.why(more)


def test_dask_workers_that_carry_roles_or_could(cluster):
    cluster.scheduler.add("d", 1)
    cluster.scheduler.workers["d"].host = "other"
    run = cluster.run("r1")
    assert cluster.placement_queue.num_places(None, {}, None) == 3
    assert cluster.placement_queue.num_places(None, {}, None, "other") == 1
    assert cluster.placement_queue.num_places(None, {}, None, on_one_host=False) == 4
    assert cluster.placement_queue.num_places(None, {"GPU": 1}, None) == 0
    assert cluster.placement_queue.num_places(None, {}, ["a", "d"]) == 1
    assert len(cluster.granted("r1", 2, on=["a", "b"])) == 2
    cluster.scheduler.workers["a"].status.name = "paused"
    assert cluster.placement_queue.num_places(run, {}, None, "h") == 3, "what is paused goes on soon"
    assert cluster.placement_queue.num_places(None, {}, None, "h") == 2
    assert cluster.granted("r2", 1, on=["c"]) == ["c"]
    assert cluster.placement_queue.num_places(run, {}, None, "h") == 3, "it has a free thread"
    assert not cluster.ask("r3", 2, on=["c"]).granted
    assert cluster.placement_queue.num_places(run, {}, None, "h") == 2, "another run waits for room"
    cluster.scheduler.workers["a"].status.name = "closing"
    assert cluster.placement_queue.num_places(run, {}, None, "h") == 1


@pytest.mark.parametrize(
    ("threads", "num_used", "beside", "count"),
    [
        ({"a": 1, "b": 1, "c": 1, "d": 1}, 0, 0, 4),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, 1, 1, 2),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, 2, 3, -1),  # so it begins with the least number
        ({"a": 1, "b": 1, "c": 1, "d": 1}, 0, 1, 4),  # five roles share four threads that nothing else uses
        ({"a": 2, "b": 1, "c": 1}, 1, 1, 2),
        ({"a": 3, "b": 1, "c": 1}, 1, 1, 3),
    ],
)
def test_other_roles_need_threads_too(a_scheduler, threads, num_used, beside, count):
    cluster = Cluster(a_scheduler(**threads))
    if num_used:
        assert len(cluster.granted("r1", num_used)) == num_used
    assert cluster.placement_queue.num_places(None, {}, None, beside=beside, on_one_host=False) == count
    if count > 0:
        assert cluster.ask("r2", count + beside).granted, "there is room for all of them now"


def test_a_run_that_follows_dask_workers_takes_those_of_one_host(cluster):
    cluster.run("r1").follows = True
    for name in ("d", "e"):
        cluster.scheduler.add(name, 4)
        cluster.scheduler.workers[name].host = "other"
    assert sorted(cluster.granted("r1", 3)) == ["a", "b", "c"], "the host with most"
    cluster.run("r2").follows = True
    assert sorted(cluster.granted("r2", 7)) == [*"ddddeee"], "the host that has room for all"


def test_roles_of_a_lost_dask_worker_share_the_threads_of_the_others(a_scheduler):
    cluster = Cluster(a_scheduler(a=1, b=1))
    cluster.run("r1").in_place = True
    assert sorted(cluster.granted("r1", 2)) == ["a", "b"]
    where = {address: key for key, (address, _) in cluster.run("r1").places.items()}
    assert cluster.granted("r1", 1, first=2) == [], "one that joins does not"
    cluster.placement_queue.free(cluster.run("r1"), [("worker", 2)])
    del cluster.scheduler.workers["b"]
    assert cluster.granted("r1", 1, first=where["b"][1]) == ["a"]


def test_roles_that_join_come_to_the_hosts_of_their_run_before_others(a_scheduler):
    addresses = ["tcp://one:1", "tcp://two:1", "tcp://three:1", "tcp://one:2", "tcp://two:2"]
    cluster = Cluster(a_scheduler(**dict.fromkeys(addresses, 1)))
    for address, ws in cluster.scheduler.workers.items():
        ws.host = address[6:9]
    cluster.run("r1").in_place = True
    assert len(cluster.granted("r1", 2, on=["tcp://one:1", "tcp://two:1"])) == 2
    assert sorted(cluster.granted("r1", 2, first=2)) == ["tcp://one:2", "tcp://two:2"]
    assert cluster.granted("r1", 1, first=4) == ["tcp://three:1"]


def test_a_role_that_is_replaced_in_place_stays_on_its_host_if_there_is_room(a_scheduler):
    addresses = ["tcp://one:1", "tcp://one:2", "tcp://two:1", "tcp://two:2"]
    cluster = Cluster(a_scheduler(**dict.fromkeys(addresses, 1)))
    for address, ws in cluster.scheduler.workers.items():
        ws.host = address[6:9]
    cluster.run("r1").in_place = True
    assert sorted(cluster.granted("r1", 2)) == ["tcp://one:1", "tcp://two:1"]
    where = {address: key for key, (address, _) in cluster.run("r1").places.items()}
    del cluster.scheduler.workers["tcp://two:1"]
    assert cluster.granted("r1", 1, first=where["tcp://two:1"][1]) == ["tcp://two:2"]
    del cluster.scheduler.workers["tcp://two:2"]
    assert cluster.granted("r1", 1, first=where["tcp://two:1"][1]) == ["tcp://one:2"]
