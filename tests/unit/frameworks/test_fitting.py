"""What the adapters of ``fit`` do around the adapter of a framework; workers are threads."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.frameworks.fitting import FitFramework
from dask_train.roles import AddressBook


class Inner(Framework):
    """Notes for whom it is loaded."""

    views = "writable"
    role_bytes, shared_bytes = 7, 5

    def __init__(self):
        self.loaded = []

    def load(self, me):
        self.loaded.append((me.role, me.rank))

    def lack_of_device(self):
        return "it has none"

    def empty(self, size):
        return np.zeros(size, np.uint8)

    def to_batch(self, arrays):
        return [*arrays]


def info(role="worker", rank=0, **counts):
    return RoleInfo(role=role, rank=rank, counts=counts, host="127.0.0.1", num_threads=1, tls={"ca_file": "ca.pem"})


def test_memory_and_batches_are_those_of_the_framework():
    framework = FitFramework(Inner())
    assert (framework.views, framework.role_bytes, framework.shared_bytes) == ("writable", 7, 5)
    assert framework.to_batch((1, 2)) == [1, 2]
    assert framework.empty(3).shape == (3,)
    assert framework.lack_of_device() == "it has none"


def test_what_a_loss_means():
    framework = FitFramework(Inner())
    counts = ({"worker": 2}, {"worker": 2, "scorer": 1}, {"worker": 1}, {"worker": 2, "ps": 1})
    assert [framework.agrees_every_step(each) for each in counts] == [True, True, False, False]
    assert [framework.can_replace(role) for role in ("worker", "scorer", "ps")] == [True, True, False]


def test_whoever_others_dial_holds_a_port():
    frameworks = [FitFramework(Inner()) for _ in range(3)]
    roles = [info(role, worker=1, ps=1, scorer=1) for role in ("worker", "ps", "scorer")]
    addresses = [framework.prepare(me) for framework, me in zip(frameworks, roles, strict=True)]
    ports = [each._port_holder.getsockname()[1] for each in frameworks[:2]]
    assert addresses == [*(f"127.0.0.1:{port}" for port in ports), ""]
    assert [each._inner.loaded for each in frameworks] == [[("worker", 0)], [("ps", 0)], [("scorer", 0)]]
    for each in frameworks[:2]:
        each._port_holder.close()


def meet(frameworks, peers, timeout_s=20.0):
    """The workers that each finds on its host, when all of them have come."""
    counts = {"worker": len(peers["worker"])}

    def be(rank):
        with frameworks[rank].rendezvous(info("worker", rank, **counts), peers, timeout_s) as extras:
            hosts, memory = extras["meeting"]
            memory.arrive()
            for place in range(counts["worker"]):
                while not memory.wait_for(place, 20.0):
                    pass
            return hosts.group_of(rank)

    with ThreadPoolExecutor(len(frameworks)) as pool:
        return [*pool.map(be, range(len(frameworks)))]


def test_the_workers_of_a_host_agree_in_one_memory():
    ours = FitFramework(Inner())
    frameworks = [pickle.loads(pickle.dumps(ours)) for _ in range(2)]  # as they travel
    peers = AddressBook(worker=[each.prepare(info("worker", rank, worker=2)) for rank, each in enumerate(frameworks)])
    assert meet(frameworks, peers) == [[0, 1]] * 2
    for each in frameworks:
        each._port_holder.close()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_that_are_replaced_in_place_meet_as_they_begin_to_train(num_workers):
    framework = FitFramework(Inner(), in_place=True)
    me = info("worker", worker=num_workers)
    with framework.rendezvous(me, AddressBook(worker=["127.0.0.1:1", "127.0.0.1:2"][:num_workers]), 20.0) as extras:
        assert (extras["meeting"] is None) == (num_workers > 1), "there is nobody to replace"
    assert (framework.replaces_in_place, FitFramework(Inner()).replaces_in_place) == (True, False)


def test_one_that_does_not_come_is_an_error_in_time():
    with pytest.raises(LaunchError):
        meet([FitFramework(Inner())], AddressBook(worker=["127.0.0.1:1", "127.0.0.1:2"]), timeout_s=0.1)


@pytest.mark.parametrize("me", [info("scorer", worker=2, scorer=1), info("worker", worker=2, ps=1)])
def test_who_agrees_with_nobody_is_told_of_its_host_and_certificates(me):
    with FitFramework(Inner()).rendezvous(me, AddressBook(), 1.0) as extras:
        assert extras == {"host": "127.0.0.1", "tls": {"ca_file": "ca.pem"}}


def test_one_alone_in_the_clients_process_loads_nothing_and_agrees_with_itself():
    framework = FitFramework(Inner())
    with framework.alone(info(worker=1)) as extras:
        hosts, memory = extras["meeting"]
        memory.arrive()
        assert hosts.group_of(0) == [0]
        assert memory.wait_for(0, 1.0)
    assert framework._inner.loaded == []
