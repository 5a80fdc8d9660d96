"""What LightGBM's ranks are told of each other; ranks are threads, and nothing of LightGBM is imported."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.lightgbm import adapter
from dask_train.frameworks.lightgbm.adapter import LightGBMFramework
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.roles import AddressBook


def info(role, rank=0, host="127.0.0.1", **counts):
    return RoleInfo(role=role, rank=rank, counts=counts, host=host, num_threads=2)


@pytest.fixture(autouse=True)
def left(monkeypatch):
    """Who has closed LightGBM's connections."""
    found = []
    monkeypatch.setattr(adapter, "_leave", lambda: found.append("left"))
    monkeypatch.setattr(adapter, "_boosters", boosters)
    return found


def boosters():
    """A class of its own for each rank, which keeps what it is to connect."""

    class Booster:
        def set_network(self, machines, local_listen_port, listen_time_out, num_machines):
            self.network = machines, local_listen_port, listen_time_out, num_machines

    return Booster


def meet(me, peers, holder=None, timeout_s=20.0):
    framework = LightGBMFramework()
    framework._port_holder = holder
    with framework.rendezvous(me, peers, timeout_s) as given:
        return given


def test_ranks_are_told_where_all_of_them_listen(left):
    with hold_port() as holder, ThreadPoolExecutor(3) as pool:
        peers = AddressBook(chief=[address_of("127.0.0.1", holder)], worker=["", ""])
        ranks = [info(role, rank, chief=1, worker=2) for role, rank in (("chief", 0), ("worker", 0), ("worker", 1))]
        given = [*pool.map(lambda me: meet(me, peers, None if me.role == "worker" else holder), ranks)]
    networks = [each["network"] for each in given]
    ports = [network.pop("local_listen_port") for network in networks]
    assert networks[0]["machines"] == ",".join(f"127.0.0.1:{port}" for port in ports)
    assert (networks[0]["num_machines"], networks[0]["tree_learner"]) == (3, "data")
    assert networks[1:] == networks[:1] * 2
    assert [each["num_threads"] for each in given] == [2] * 3
    assert left == ["left"] * 3
    with socket.socket() as other:
        other.bind(("", ports[0]))  # it is LightGBM's to bind


@pytest.mark.parametrize("me", [info("worker", worker=1), info("scorer", worker=2, scorer=1)])
def test_who_meets_nobody_has_no_network(left, me):
    assert meet(me, AddressBook(worker=["h:1", ""], scorer=[""])) == {"num_threads": 2, "network": {}}
    assert left == []


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_host_without_ipv4_is_told(host):
    me = info("worker", 1, host=host, worker=2)
    with pytest.raises(
        LaunchError, match=r"has no IPv4 address: .*LightGBM connects its ranks over IPv4 only.*XGBoost"
    ):
        meet(me, AddressBook(worker=["[::1]:1", ""]))


def test_a_name_becomes_an_address():
    assert adapter._address("localhost") == "127.0.0.1"


def test_ranks_meet_anew_for_each_booster(monkeypatch):
    def connects(rank):
        kinds, framework = boosters(), LightGBMFramework()
        of_thread.kinds = kinds
        original = kinds.set_network
        framework._port_holder = None if rank else holder
        found = []
        with framework.rendezvous(info("worker", rank, worker=2), peers, 20.0) as given:
            network = given["network"]
            told = {name: network[name] for name in ("machines", "local_listen_port", "num_machines")}
            for _ in range(3):
                booster = kinds()
                booster.set_network(**told, listen_time_out=network["time_out"])
                found.append(booster.network)
            booster.set_network("1.2.3.4:5", 6, 7, 8)
            assert booster.network == ("1.2.3.4:5", 6, 7, 8), "the user's own"
        assert kinds.set_network is original
        return found

    of_thread = threading.local()
    monkeypatch.setattr(adapter, "_boosters", lambda: of_thread.kinds)
    with hold_port() as holder, ThreadPoolExecutor(2) as pool:
        peers = AddressBook(worker=[address_of("127.0.0.1", holder), ""])
        first, second = pool.map(connects, range(2))
    for one, other in zip(first, second, strict=True):
        assert one[0] == other[0] == f"127.0.0.1:{one[1]},127.0.0.1:{other[1]}"
        assert one[2:] == other[2:] == (adapter.PATIENCE_MIN, 2)
    assert len({machines for machines, *_ in first}) == 3
