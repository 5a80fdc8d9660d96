"""Networks on real Dask workers, with servers that only listen: where they stand, roles, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from distributed import Client, Event, MultiLock, get_worker
from distributed.core import Status

import dask_train as dt


def owner_of(port: int) -> set[int]:
    """The processes that listen on ``port``."""
    connections = psutil.net_connections(kind="tcp")
    return {c.pid for c in connections if c.laddr.port == port and c.status == psutil.CONN_LISTEN}


def pids(client: Client) -> dict[str, int]:
    """The process of each Dask worker."""
    import os

    return client.run(os.getpid)


def ports(book: dt.AddressBook) -> list[int]:
    return [int(address.rpartition(":")[2]) for _, _, address in book.tasks()]


def where(*args, **kwargs):
    worker = get_worker()
    return worker.address, worker.tensorflow_server.target, args, kwargs


def test_each_server_is_in_the_dask_worker_of_the_same_place(client, workers, wait_for):
    spares = workers(client)
    with dt.start_tensorflow(client, ps=1, worker=2) as net:
        tf_spec, dask_spec = net
        assert (tf_spec.jobs, dask_spec.jobs) == (["ps", "worker"], ["ps", "worker"])
        assert [len(places) for places in tf_spec.values()] == [1, 2]
        processes = pids(client)
        for (job, index, address), port in zip(dask_spec.tasks(), ports(tf_spec), strict=True):
            assert owner_of(port) == {processes[address]}, (job, index)
            assert net.target(job, index) == f"grpc://127.0.0.1:{port}"
        assert net.status == "running"
        assert repr(net) == f"<TensorFlowNetwork {net.id}: ps=1, worker=2, running>"
        assert sorted(address for _, _, address in dask_spec.tasks()) == sorted(spares)
        with pytest.raises(ValueError, match="no job 'chief'; its jobs are ps, worker"):
            net.target("chief")
    assert net.status == "closed"
    wait_for(lambda: not any(owner_of(port) for port in ports(tf_spec)), "the ports are closed")
    assert len(workers(client)) == 3
    assert not set(workers(client)) & set(spares), "the processes are new ones"
    net.close()


def test_roles_run_at_their_places_with_their_arguments(client):
    with dt.start_tensorflow(client, ps=1, worker=2, leave_servers=True) as net:
        ready = client.submit(lambda: [1, 2])
        # names that Client.submit takes for itself, too
        roles = net.submit("worker", where, "a", ready, key="k", workers=4, retries=2, nested={"x": [ready]})
        for index, (address, target, args, kwargs) in enumerate(client.gather(roles)):
            assert address == net.dask_spec.task_address("worker", index)
            assert target == net.target("worker", index)
            assert args == ("a", [1, 2])
            assert kwargs == {"key": "k", "workers": 4, "retries": 2, "nested": {"x": [[1, 2]]}}
        assert len(net.submit("ps", where)) == 1
        with pytest.raises(ValueError, match="no job 'chief'"):
            net.submit("chief", where)
        with pytest.raises(TypeError, match="submit takes a function for job 'ps', not 3"):
            net.submit("ps", 3)
    with pytest.raises(dt.ClosedError, match=f"Network {net.id} is closed. Start a new one"):
        net.submit("ps", where)


def until_told(name: str) -> str:
    return "told" if Event(name).wait(60) else "late"


def test_a_role_leaves_the_only_thread_to_others(client):
    with dt.start_tensorflow(client, worker=1, leave_servers=True) as net:
        place = net.dask_spec.job_tasks("worker")
        roles = net.submit("worker", until_told, "go on")
        assert client.submit(sum, [1, 2], workers=place, pure=False).result(timeout=60) == 3
        Event("go on", client=client).set()
        assert roles[0].result(timeout=60) == "told"


def start_when_told(book, job, index, **_):
    """Does not end before the event loop of its Dask worker has run ``tell``."""
    import builtins

    builtins.told_to_start = threading.Event()
    assert builtins.told_to_start.wait(60), "the event loop did not run meanwhile"


def has_begun():
    import builtins

    return hasattr(builtins, "told_to_start")


def tell():
    import builtins

    builtins.told_to_start.set()


def test_the_event_loop_runs_while_a_server_starts(client, start_server_with, wait_for):
    start_server_with(start_when_told)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(dt.start_tensorflow, client, worker=3, leave_servers=True)
        wait_for(lambda: all(client.run(has_begun).values()), "all start their servers")
        client.run(tell)
        starting.result(60).close()


def test_without_counts_every_dask_worker_is_a_worker(client, workers):
    with dt.start_tensorflow(client, leave_servers=True) as net:
        assert sorted(net.dask_spec["worker"]) == sorted(workers(client))
        with pytest.raises(dt.PlacementError, match=r"worker on every Dask worker needs at least 1 .* 0 of 3 .* free"):
            dt.start_tensorflow(client)


def test_on_says_which_and_in_which_order(client, workers):
    first, second, third = workers(client)
    with dt.start_tensorflow(client, on=[third, first], jobs={"on": 1}, ps=1, leave_servers=True) as net:
        assert net.dask_spec == {"on": [third], "ps": [first]}
        with dt.start_tensorflow(client, on=(second,), leave_servers=True) as other:
            assert other.dask_spec == {"worker": [second]}
            assert set(ports(net.tf_spec)).isdisjoint(ports(other.tf_spec))
            seen = client.gather([*net.submit("ps", where), *other.submit("worker", where)])
            assert [address for address, *_ in seen] == [first, second]


def test_networks_may_follow_each_other_in_the_same_processes(client):
    for _ in range(3):
        with dt.start_tensorflow(client, worker=3, leave_servers=True) as net:
            assert len(client.gather(net.submit("worker", where))) == 3


def test_too_few_dask_workers(client, workers):
    with dt.start_tensorflow(client, worker=1, leave_servers=True) as net:
        taken = net.dask_spec.task_address("worker", 0)
        with pytest.raises(
            dt.PlacementError,
            match=rf"^ps=1, worker=2 needs 3 Dask workers, one a task, and 2 of 3 in the cluster are free\. "
            rf"{taken} carries network {net.id}\. Ask for fewer",
        ):
            dt.start_tensorflow(client, ps=1, worker=2)
        with pytest.raises(dt.PlacementError, match=r"ps=1 needs 1 .* 0 of 1 in on= are free"):
            dt.start_tensorflow(client, ps=1, on=[taken])
    with pytest.raises(dt.PlacementError, match=r"worker=4 needs 4 Dask workers, one a task, and 3 of 3"):
        dt.start_tensorflow(client, worker=4)
    with pytest.raises(dt.PlacementError, match=r"ps=2: there are no Dask workers in on=\. Start some"):
        dt.start_tensorflow(client, ps=2, on=[])
    with pytest.raises(
        dt.PlacementError,
        match=rf"on= names tcp://127\.0\.0\.1:1, which the cluster does not have\. Its Dask workers are "
        rf"{', '.join(workers(client))}\. A restarted",
    ):
        dt.start_tensorflow(client, ps=1, on=["tcp://127.0.0.1:1"])


def set_status(status, dask_worker):
    dask_worker.status = status


def test_a_paused_dask_worker_is_not_used(client, workers, wait_for):
    paused, *_ = workers(client)
    client.run(set_status, Status.paused, workers=[paused])
    wait_for(lambda: len(workers(client)) == 2, "one is paused")
    with pytest.raises(
        dt.PlacementError, match=rf"2 of 3 in the cluster are free\. {paused} is paused \(memory at \d+%"
    ):
        dt.start_tensorflow(client, worker=3)
    with dt.start_tensorflow(client, leave_servers=True) as net:
        assert paused not in net.dask_spec["worker"]
    client.run(set_status, Status.running, workers=[paused])
    wait_for(lambda: len(workers(client)) == 3, "it runs again")


def test_multi_locks_and_networks_exclude_each_other(client, workers):
    first, second, _ = workers(client)
    lock = MultiLock([first], client=client)
    assert lock.acquire(timeout=60)
    with pytest.raises(dt.PlacementError, match=rf"{first} is locked by another library, such as xgboost\.dask\."):
        dt.start_tensorflow(client, worker=3)
    lock.release()
    with dt.start_tensorflow(client, on=[first, second], leave_servers=True):
        assert not MultiLock([second], client=client).acquire(timeout=0.1)
        waiting = MultiLock([second], client=client)
        got = []
        thread = threading.Thread(target=lambda: got.append(waiting.acquire(timeout=30)))
        thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert got == [True]
    waiting.release()


def test_an_asynchronous_client_needs_async_with(client):
    async def run():
        async with (
            Client(client.scheduler.address, asynchronous=True) as other,
            await dt.start_tensorflow(other, worker=1, leave_servers=True) as net,
        ):
            with pytest.raises(TypeError, match=r"write: async with await dask_train\.start_tensorflow"), net:
                pass

    asyncio.run(run())
