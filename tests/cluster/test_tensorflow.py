"""Real TensorFlow servers: graphs that run across them, one that is killed, and three in a single process."""

from __future__ import annotations

import collections
import functools
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from queue import Empty

import numpy as np
import psutil
import pytest
from distributed import Client, Event, get_worker

import dask_train as dt
from dask_train.demo import pipeline

pytestmark = pytest.mark.slow


def listening(port):
    return {c.pid for c in psutil.net_connections("tcp") if c.laddr.port == port and c.status == psutil.CONN_LISTEN}


def train(cluster, name, num_batches):
    """Add what the queue gives to a variable of the parameter server, until all workers together have added all."""
    import tensorflow as tf

    tf1, worker = tf.compat.v1, get_worker()
    tf1.disable_eager_execution()
    index = worker.tensorflow_member.index
    with tf.Graph().as_default(), tf1.device(tf1.train.replica_device_setter(cluster=cluster)):
        total = tf1.get_variable("total", shape=(), dtype=tf.float64, initializer=tf1.zeros_initializer())
        batch = tf1.placeholder(tf.float64, shape=(None,))
        with tf.device(f"/job:worker/task:{index}"):
            part = tf.reduce_sum(batch)
        add = tf1.assign_add(total, part, use_locking=True)
        progress = dt.board(name)
        with tf1.Session(worker.tensorflow_server.target) as session:
            if index == 0:
                session.run(total.initializer)
                progress.append("initialized")
            progress.wait_until(lambda p: len(p) > 0, 60)
            while progress.count < 1 + num_batches:
                with suppress(Empty):
                    session.run(add, {batch: worker.tensorflow_queue.get(timeout=0.05)})
                    progress.append(index)
            return total.device, session.run(total)


def ask_the_dead(name):
    """Ask the parameter server for ever: a v1 session is told nothing of its death."""
    import tensorflow as tf

    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            answer = tf.random.uniform(())
        with tf.compat.v1.Session(get_worker().tensorflow_server.target) as session:
            session.run(answer)
            Event(name).set()
            while True:
                session.run(answer)


IN_GRAPH = """
import sys
import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
with tf.device("/job:worker/task:1"):
    factor = tf1.placeholder(tf.float32, (1, 1))  # what is constant is folded, and runs nowhere
    product = tf.matmul(factor, [[2.0]], name="there")
metadata = tf1.RunMetadata()
with tf1.Session(sys.argv[1]) as session:
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    value = session.run(product, {factor: [[3.0]]}, options=options, run_metadata=metadata)
nodes = {node.node_name: stats.device for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
print(value[0][0], nodes["there"])
"""


def run_python(code, *arguments):
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=quiet, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def prepare(number):
    return np.full(10, float(number))


def test_graphs_across_the_dask_workers(make_cluster, workers, state, wait_for):
    with Client(make_cluster()) as client:
        net = dt.start_tensorflow(client, ps=1, worker=2, queue_size=2)
        processes = client.run(os.getpid)
        ports = [int(address.rpartition(":")[2]) for _, _, address in net.tf_spec.tasks()]
        for (_, _, address), port in zip(net.dask_spec.tasks(), ports, strict=True):
            assert listening(port) == {processes[address]}

        # one thread a Dask worker: preparing, feeding and training share it
        roles = net.submit("worker", train, net.tf_spec, "progress", 20)
        feed = net.feed(client.map(prepare, range(20)), to="worker")
        for device, total in client.gather(roles):
            assert device.startswith("/job:ps")
            assert total == 10 * sum(range(20))
        assert feed.wait(60).delivered == 20

        value, device = run_python(IN_GRAPH, net.target("worker", 0)).split()
        assert (float(value), device) == (6.0, "/job:worker/replica:0/task:1/device:CPU:0")

        stuck = net.submit("worker", ask_the_dead, "asks")
        assert Event("asks", client=client).wait(60)
        os.kill(processes[net.dask_spec.task_address("ps", 0)], signal.SIGKILL)
        for role in stuck:
            with pytest.raises(dt.RoleLostError, match=f"ps 0 of network {net.id} is gone"):
                role.result(timeout=60)
        net.close()
        servers = set(processes.values())  # the kernel may have given a port to somebody else since
        wait_for(lambda: not any(listening(port) & servers for port in ports), "the servers' ports are closed")
        wait_for(lambda: len(workers(client)) == 3, "all are back")
        assert state(client)["networks"] == {}


def losing(role, at, task):
    """A role of the demo; in each of its threads the steps of these numbers are done, and then said to have failed."""
    import tensorflow as tf

    session, steps, lost = tf.compat.v1.Session, collections.Counter(), dt.board("lost")
    run = session.run

    def run_and_lose(self, *arguments, **more):
        result = run(self, *arguments, **more)
        thread = threading.current_thread().name
        steps[thread] += 1
        if steps[thread] in at:
            lost.append((role.__name__, thread == "apply-means"))
            raise tf.errors.AbortedError(None, None, "The same RunGraph (Worker) request was received twice.")
        return result

    session.run = run_and_lose
    try:
        return role(task)
    finally:
        session.run = run


@pytest.mark.nightly
def test_the_demo_outlives_lost_requests(make_cluster, monkeypatch):
    monkeypatch.setattr(pipeline, "train", functools.partial(losing, pipeline.train, (10, 30)))
    monkeypatch.setattr(pipeline, "score", functools.partial(losing, pipeline.score, (2,)))
    settings = pipeline.DemoSettings(copies=1, workers=1, target=0.6, sync=True)
    with Client(make_cluster()) as client:
        prepared = pipeline.prepare(client, settings, lambda _: None)
        lost = dt.board("lost", client=client)
        with dt.start_tensorflow(client, ps=1, worker=1, scorer=1) as net:
            outcome = pipeline.train_until_good_enough(net, prepared, settings, lambda _: None)
            prepared.release()
        assert outcome.good_enough
        assert outcome.test["test_loss"] < 0.7, "the variables were not initialised again"
        assert sorted(lost) == [("score", False), *2 * [("train", False)], *2 * [("train", True)]]


IN_PROCESS = """
import socket
from distributed import Client, LocalCluster, get_worker
import dask_train as dt
from dask_train.frameworks.tensorflow.server import start_server
from dask_train.roles import AddressBook

def step():
    import tensorflow as tf
    tf1, worker = tf.compat.v1, get_worker()
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            weight = tf1.get_variable("weight", shape=(), initializer=tf1.zeros_initializer(), use_resource=True)
        with tf.device(f"/job:worker/task:{worker.tensorflow_member.index}"):
            add = weight.assign_add(tf.reduce_sum(tf.ones(10)))
        with tf1.Session(worker.tensorflow_server.target) as session:
            if worker.tensorflow_member.index == 0:
                session.run(weight.initializer)
                dt.board("ready").append(True)
            dt.board("ready").wait_until(bool, 60)
            session.run(add)
            dt.board("added").append(1)
            dt.board("added").wait_until(lambda b: len(b) == 2, 60)
            return float(session.run(weight))

with LocalCluster(n_workers=3, processes=False, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
    with dt.start_tensorflow(client, worker=2, ps=1, leave_servers=True) as net:
        print(client.gather(net.submit("worker", step)))
    taken = socket.create_server(("127.0.0.1", 0))
    book = AddressBook(ps=[f"127.0.0.1:{taken.getsockname()[1]}"])
    try:
        start_server(book, "ps", 0, process_ends_with_it=False)
    except dt.LaunchError as error:
        print(error)
"""


def test_three_servers_in_one_process_and_one_that_can_not_start():
    weights, error = run_python(IN_PROCESS).splitlines()
    assert weights == "[20.0, 20.0]"
    assert error.startswith("The TensorFlow server of ps 0 could not start at 127.0.0.1:")
    assert "a firewall may refuse it. Look at the Dask worker's log" in error
