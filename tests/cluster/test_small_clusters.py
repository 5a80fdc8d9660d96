"""Networks on clusters that a test has for itself: too few or too small Dask workers, and such that don't come back."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import Client, Event, get_worker, wait

import dask_train as dt


def start_nothing(book, job, index, **_):
    """No socket: Dask keeps the workers of an in-process cluster in a cache after their end."""
    return SimpleNamespace(target=f"grpc://{book.task_address(job, index)}")


def target():
    return get_worker().tensorflow_server.target


def test_a_cluster_without_dask_workers_or_nannies(make_cluster, start_server_with):
    start_server_with(start_nothing)
    with (
        Client(make_cluster(n_workers=0)) as client,
        pytest.raises(dt.PlacementError, match="there are no Dask workers"),
    ):
        dt.start_tensorflow(client)
    with Client(make_cluster(n_workers=2, processes=False)) as client:
        with pytest.raises(
            dt.PlacementError,
            match=r"1 of the Dask workers have no nanny: inproc://.* can't be stopped.* leave_servers=True",
        ):
            dt.start_tensorflow(client, worker=1)
        with dt.start_tensorflow(client, worker=2, leave_servers=True) as net:
            targets = client.gather(net.submit("worker", target))
        assert targets == [net.target("worker", 0), net.target("worker", 1)]


def big(seed):
    return np.random.default_rng(seed).standard_normal(1000)


def block(name):
    Event(f"{name} runs").set()
    Event(name).wait(60)
    return "unblocked"


class Counter:
    """An actor."""

    def __init__(self):
        self.count = 0

    def increment(self):
        self.count += 1
        return self.count


def test_what_can_not_be_moved_is_listed_and_nothing_is_touched(make_cluster, without_tensorflow, workers, state):
    with Client(make_cluster(n_workers=1)) as client:
        net = dt.start_tensorflow(client, worker=1)
        (address,) = workers(client)
        (data,) = client.scatter([b"x" * 1000], hash=False)
        again = client.submit(big, 1)
        wait(again)
        role = net.submit("worker", block, "held")[0]
        with pytest.raises(
            dt.DataError,
            match=rf"Network {net.id} can't be closed: 1 results lie only on its Dask workers and can be neither moved "
            rf"nor computed again: {data.key} \(1\d\d\d bytes\)\..*Release them, add a Dask worker, or .*force=True",
        ):
            net.close()
        assert (net.status, workers(client)) == ("running", [address])
        Event("held", client=client).set()
        assert role.result(timeout=60) == "unblocked"
        del data, role
        net.close()
        assert workers(client) != [address]
        assert again.result(timeout=60).shape == (1000,)

        net = dt.start_tensorflow(client, worker=1)
        counter = client.submit(Counter, actor=True).result(timeout=60)
        assert counter.increment().result() == 1
        with pytest.raises(dt.DataError, match=r"1 results .*: Counter-.* \(an actor\)"):
            net.close()
        assert counter.increment().result() == 2
        net.close(force=True)
        net.close()
        assert (net.status, state(client)["networks"], len(workers(client))) == ("closed", {}, 1)


def test_data_that_fits_nowhere_is_listed(make_cluster, without_tensorflow, workers):
    """One Dask worker holds more than the other could take; where it fits, it is moved there and back."""
    with Client(make_cluster(n_workers=2, memory_limit="900MB")) as client:
        net = dt.start_tensorflow(client, worker=2)
        first, second = net.dask_spec["worker"]
        small, large = (
            client.submit(np.full, mb * 125_000, 7.0, workers=[w]) for mb, w in ((100, first), (450, second))
        )
        wait([small, large])
        with pytest.raises(
            dt.DataError, match=rf": {large.key} \(4500000\d\d bytes\)\. The other Dask workers have no room"
        ):
            net.close()
        assert client.who_has([small, large]) == {small.key: (first,), large.key: (second,)}
        assert (net.status, set(workers(client))) == ("running", {first, second})
        del large
        net.close()
        assert small.result(timeout=60)[-1] == 7.0
        assert not set(workers(client)) & {first, second}


def test_networks_that_close_at_once_do_not_trust_each_other_with_data(make_cluster, without_tensorflow, workers):
    with Client(make_cluster(n_workers=2)) as client:
        for _ in range(2):
            nets = [dt.start_tensorflow(client, worker=1) for _ in range(2)]
            data = [
                client.scatter([big(n)], hash=False, workers=net.dask_spec["worker"])[0] for n, net in enumerate(nets)
            ]
            with ThreadPoolExecutor(2) as pool:
                for closing in [pool.submit(net.close) for net in nets]:
                    closing.result(60)
            for n, value in enumerate(client.gather(data)):
                np.testing.assert_array_equal(value, big(n))
            assert len(workers(client)) == 2


CLIENT_THAT_LEAVES = """
import sys
from distributed import Client
import dask_train as dt
from dask_train import tensorflow_network

tensorflow_network.start_server = lambda book, job, index, **_: None
dt.start_tensorflow(Client(sys.argv[1]), worker=1)
"""


def test_another_clients_data_outweighs_the_network_of_a_client_that_left(
    make_cluster, without_tensorflow, workers, state, wait_for
):
    with Client(make_cluster(n_workers=1)) as client:
        (data,) = client.scatter([big(1)], hash=False)
        before = workers(client)
        subprocess.run([sys.executable, "-c", CLIENT_THAT_LEAVES, client.scheduler.address], check=True, timeout=60)
        wait_for(lambda: not state(client)["networks"], "the lease is over")
        assert workers(client) == before
        np.testing.assert_array_equal(data.result(timeout=60), big(1))
        with pytest.raises(
            dt.PlacementError, match=rf"{before[0]} holds a server of network tf-\w+, which ended without"
        ):
            dt.start_tensorflow(client)


def leave_with_your_worker(dask_worker):
    """A nanny that starts nothing any more, as in a batch job at its end."""
    dask_worker.close_gracefully()


def test_a_dask_worker_that_does_not_come_back_is_told(make_cluster, without_tensorflow, workers, state):
    with Client(make_cluster(n_workers=2)) as client:
        net = dt.start_tensorflow(client, worker=1)
        place = net.dask_spec["worker"]
        nanny = client.sync(client.scheduler.identity, n_workers=-1)["workers"][place[0]]["nanny"]
        client.run(leave_with_your_worker, nanny=True, workers=place)
        with pytest.raises(
            dt.LaunchError, match=rf"^1 Dask workers did not come back; their nannies were {nanny}\. .*cluster\.scale"
        ):
            net.close()
        assert (net.status, state(client)["networks"], len(workers(client))) == ("closed", {}, 1)


def refuse(book, job, index, **_):
    if (job, index) == ("worker", 1):
        raise OSError("address already in use")


def test_a_launch_that_fails_does_not_lose_data(make_cluster, start_server_with, state, workers):
    """Where its Dask workers can't restart, they stay, and no other network is put on them."""
    start_server_with(refuse)
    with Client(make_cluster(n_workers=2)) as client:
        data = client.scatter([1, 2], hash=False)
        before = workers(client)
        counter = client.submit(dict, actor=True).result(timeout=60)
        with pytest.raises(dt.LaunchError, match="address already in use") as caught:
            dt.start_tensorflow(client, worker=2)
        assert "Its Dask workers were not restarted, so servers that had started stay" in caught.value.__notes__[0]
        assert "1 results lie only there and can't be moved: dict-" in caught.value.__notes__[0]
        assert (state(client)["networks"], workers(client)) == ({}, before)
        assert client.gather(data) == [1, 2]
        with pytest.raises(
            dt.PlacementError,
            match=rf"0 of 2 in the cluster are free\. {before[0]} holds a server of network tf-\w+, which",
        ):
            dt.start_tensorflow(client, worker=1)
        del counter
        client.restart_workers(before)
        with dt.start_tensorflow(client, worker=1, leave_servers=True) as net:
            assert net.status == "running"
