"""What LightGBM's ranks are told of each other; ranks are threads, and nothing of LightGBM is imported."""

from __future__ import annotations

import socket
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
    return found


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
