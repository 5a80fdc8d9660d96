"""The end of a network: Dask workers restarted, and nothing lost that only they held."""

from __future__ import annotations

import socket

import dask.array as da
import numpy as np
import pytest
from distributed import Event, get_worker, wait

import dask_train as dt


def big(seed):
    return np.random.default_rng(seed).standard_normal(1000)


def numbered():
    return get_worker().tensorflow_member.index


def refused(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def test_nothing_is_lost_with_and_without_a_spare_dask_worker(client, workers):
    before = set(workers(client))
    for count in (2, 3):
        net = dt.start_tensorflow(client, worker=count)
        places = net.dask_spec["worker"]
        scattered = client.scatter([big(n) for n in range(3)], hash=False, workers=places)
        array = da.random.default_rng(3).standard_normal((300, 4), chunks=(50, 4)).persist()
        total = float(array.sum().compute())
        pinned = [client.submit(big, 10 + n, workers=[place], pure=False) for n, place in enumerate(places)]
        roles = net.submit("worker", numbered)
        wait([*pinned, *roles, array])
        addresses = [address for _, _, address in net.tf_spec.tasks()]
        assert not any(refused(address) for address in addresses)
        net.close()
        assert all(refused(address) for address in addresses)
        assert len(workers(client)) == 3
        assert not set(workers(client)) & set(places)
        assert client.gather(roles) == list(range(count))
        for n, value in enumerate(client.gather(scattered)):
            np.testing.assert_array_equal(value, big(n))
        for n, value in enumerate(client.gather(pinned)):
            np.testing.assert_array_equal(value, big(10 + n))
        assert float(array.sum().compute()) == total
    assert not set(workers(client)) & before


def block(name):
    Event(f"{name} runs").set()
    Event(name).wait(60)
    return "unblocked"


def test_roles_and_tasks_that_still_run(client, workers):
    with dt.start_tensorflow(client, worker=2) as net:
        roles = net.submit("worker", block, "a role")
        elsewhere = client.submit(block, "a task", workers=net.dask_spec["worker"], allow_other_workers=True)
        for name in ("a role runs", "a task runs"):
            assert Event(name, client=client).wait(60)
    for role in roles:
        with pytest.raises(dt.ClosedError, match=f"Network {net.id} was closed"):
            role.result(timeout=60)
    Event("a task", client=client).set()
    assert elsewhere.result(timeout=60) == "unblocked", "Dask runs it again"
