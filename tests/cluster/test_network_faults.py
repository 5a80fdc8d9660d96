"""What is lost while a network runs, and who learns of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from distributed import Event, get_worker

import dask_train as dt


def kill(client, address):
    """As the kernel does it when memory runs out."""
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


def wait_on_queue():
    Event("waits on its queue").set()
    try:
        get_worker().tensorflow_queue.get()
    except dt.RoleLostError as error:
        Event(f"queue: {error}").set()
        raise


def wait_on_board(name):
    scores = dt.board(name)
    scores.append("waits on a board")
    try:
        scores.wait_until(lambda s: len(s) == 10)
    except dt.RoleLostError as error:
        Event(f"board: {error.what}").set()
        raise


def hang(name):
    """As a TensorFlow session does whose parameter server is dead."""
    Event(f"{name} hangs").set()
    Event(name).wait(60)


def never(name):
    Event(name).wait(60)


def test_everyone_learns_of_a_loss_and_the_cluster_can_be_used_again(client, workers, wait_for):
    net = dt.start_tensorflow(client, ps=1, worker=2)
    lost = net.dask_spec.task_address("ps", 0)
    scores = dt.board("losses", client=client)
    (ended,) = net.submit("ps", lambda: "a result that only the lost one holds")
    ended.result(timeout=60)
    roles = [
        *net.submit("ps", hang, "ps"),
        *net.submit("worker", wait_on_queue),
        *net.submit("worker", wait_on_board, "losses"),
        *net.submit("worker", hang, "worker"),
        *net.submit("worker", print, client.submit(never, "argument", workers=net.dask_spec["ps"], pure=False)),
    ]
    feed = net.feed([client.submit(never, "batch", workers=net.dask_spec["ps"], pure=False)], to="worker")
    scores.wait_until(lambda s: len(s) == 2, 30)
    for name in ("waits on its queue", "ps hangs", "worker hangs"):
        assert Event(name, client=client).wait(60)

    text = rf"ps 0 of network {net.id} is gone: its Dask worker {lost} left the cluster\."
    with ThreadPoolExecutor(8) as pool:
        waits = [
            pool.submit(scores.wait_until, lambda s: len(s) == 10),
            pool.submit(feed.wait),
            pool.submit(net.wait_lost),
            *(pool.submit(role.result) for role in roles),
        ]
        kill(client, lost)
        for waiting in waits:
            with pytest.raises(dt.RoleLostError, match=text):
                waiting.result(60)
    with pytest.raises(dt.RoleLostError, match=text):
        ended.result(timeout=60)
    # the roles that still ran have learned it themselves, not only their futures
    what = f"ps 0 of network {net.id} is gone: its Dask worker {lost} left the cluster."
    assert Event(f"queue: {what} Close the network, and start it again.", client=client).wait(60)
    assert Event(f"board: {what}", client=client).wait(60)

    assert net.status == "lost"
    for refused in (
        lambda: net.submit("worker", hang),
        lambda: net.feed(client.scatter([1]), to="worker"),
        net.wait_lost,
    ):
        with pytest.raises(dt.RoleLostError, match=text):
            refused()
    wait_for(lambda: len(workers(client)) == 3, "the nanny has started another")
    with pytest.raises(dt.PlacementError, match=rf"1 of 3 in the cluster are free\. .* carries network {net.id}"):
        dt.start_tensorflow(client, worker=3)
    survivors = set(net.dask_spec["worker"])
    net.close()
    assert (net.status, survivors & set(workers(client))) == ("closed", set())
    with pytest.raises(dt.RoleLostError, match=text):
        net.submit("worker", hang)
    with dt.start_tensorflow(client, worker=3, leave_servers=True) as again:
        assert len(client.gather(again.submit("worker", os.getpid))) == 3


def test_members_are_left_alone_when_the_cluster_shrinks(client):
    with dt.start_tensorflow(client, worker=2, leave_servers=True) as net:
        closing = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=3))
        assert len(closing) == 1
        assert closing[0] not in net.dask_spec["worker"]
    assert len(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=3))) == 3


def take(num_items):
    return sorted(get_worker().tensorflow_queue.get(timeout=60) for _ in range(num_items))


def forget_locally(keys, dask_worker):
    for key in keys:
        del dask_worker.data[key]


def test_batches_whose_holder_dies_are_computed_again(client, workers, wait_for):
    with dt.start_tensorflow(client, worker=1, queue_size=2, leave_servers=True) as net:
        holder = next(address for address in workers(client) if address not in net.dask_spec["worker"])
        batches = client.map(abs, range(12), workers=[holder], allow_other_workers=True, pure=False)
        feed = net.feed(batches, to="worker")
        wait_for(lambda: feed.delivered == 2, "the queue is full")
        kill(client, holder)
        assert net.submit("worker", take, 12)[0].result(timeout=60) == list(range(12))
        assert feed.wait(60).delivered == 12
        wait_for(lambda: len(workers(client)) == 3, "the nanny has started another")


def test_batches_that_are_nowhere_are_told(client, workers, wait_for):
    with dt.start_tensorflow(client, worker=1, queue_size=2, leave_servers=True) as net:
        holder = next(address for address in workers(client) if address not in net.dask_spec["worker"])
        first, second, third, fourth = client.scatter([10, 11, 12, 13], workers=[holder], hash=False)
        client.run(forget_locally, [first.key], workers=[holder])
        text = rf"1 of 2 .*{first.key}, could not be brought to a queue in 3 tries: it is not on {holder}\."
        with pytest.raises(dt.DataError, match=text):
            net.feed([first, second], to="worker").wait(60)
        feed = net.feed([third, fourth], to="worker")
        wait_for(lambda: feed.delivered == 1, "the queue is full")
        kill(client, holder)
        with pytest.raises(dt.DataError, match=rf"1 of 2 .*{fourth.key}, was released, or lost with its Dask worker"):
            feed.wait(60)
        assert net.submit("worker", take, 2)[0].result(timeout=60) == [11, 12]
        wait_for(lambda: len(workers(client)) == 3, "the nanny has started another")


CLIENT = """
import sys
from distributed import Client, Event
import dask_train as dt
from dask_train.tensorflow_network import api

api.start_server = lambda book, job, index, **_: None

def wait_on_queue():
    from distributed import get_worker
    get_worker().tensorflow_queue.get()

client = Client(sys.argv[1])
net = dt.start_tensorflow(client, ps=1, worker=1)
roles = net.submit("worker", wait_on_queue)
scores = dt.board("left behind", client=client)
scores.append(1)
feed = net.feed([client.submit(lambda: Event("never").wait(60), pure=False)], to="worker")
print(*net.dask_spec["ps"], *net.dask_spec["worker"], flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["returns", "killed", "killed after a loss"])
def test_the_network_of_a_client_that_leaves_is_closed(client, workers, state, wait_for, end):
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, client.scheduler.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    with process:
        members = process.stdout.readline().split()
        assert len(members) == 2, process.stderr.read()
        assert len(state(client)["networks"]) == 1
        wait_for(lambda: len(state(client)["feeds"]) == 1, "the scheduler knows of the feed")
        if end == "killed after a loss":
            kill(client, members[0])
            wait_for(lambda: next(iter(state(client)["networks"].values()))["state"] == "lost", "it is lost")
            wait_for(lambda: len(workers(client)) == 3, "the nanny has started another")
        if end != "returns":
            process.kill()
        _, errors = process.communicate("\n", timeout=30)
    assert (process.returncode, errors) == (0 if end == "returns" else -signal.SIGKILL, "")
    wait_for(lambda: not state(client)["networks"], "the network is closed")
    assert state(client)["feeds"] == ()
    wait_for(lambda: len(workers(client)) == 3, "its Dask workers are back")
    assert not set(members) & set(workers(client))
    with dt.start_tensorflow(client, worker=3, leave_servers=True) as net:
        assert net.status == "running"
    scores = dt.board("left behind", client=client)
    assert list(scores) == [1]
    scores.delete()
