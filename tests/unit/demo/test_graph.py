"""The demo's network on real servers, all in one process of their own, which ends without taking them apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Without garbage collections, which would be a quarter of the time that the import takes.
PROGRAM = """
import gc; gc.disable()
import json, os, socket, threading, time
import numpy as np
import tensorflow as tf
from dask_train.demo.graph import build, open_session

tf.get_logger().setLevel("CRITICAL")
told = {}
# placement, of tasks that are nowhere
graph = build({"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}, "worker", 1)
with graph.graph.as_default():
    variables = tf.compat.v1.global_variables()
told["places"] = {v.op.name: v.device for v in variables}
told["shapes"] = {v.op.name: v.shape.as_list() for v in variables}
told["computes"] = graph.loss.device
told["inputs"] = [[each.dtype.name, each.shape.as_list()] for each in (graph.images, graph.labels)]
told["is sync"] = graph.sync is not None

holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
ports = [f"127.0.0.1:{holder.getsockname()[1]}" for holder in holders]
for holder in holders:
    holder.close()
cluster = {"ps": ports[:1], "worker": ports[1:]}
places = [("ps", 0), ("worker", 0), ("worker", 1)]
servers = {place: tf.distribute.Server(cluster, *place) for place in places}

def opened(index, *, sync=False, chief=None, timeout_s=60.0, rate=0.001):
    graph = build(cluster, "worker", index, sync=sync, learning_rate=rate)
    chief = index == 0 if chief is None else chief
    target = servers["worker", index].target
    return graph, open_session(graph, target, "worker", index, chief=chief, timeout_s=timeout_s)

# nobody has initialised the variables yet
try:
    opened(1, timeout_s=1.0)
except tf.errors.DeadlineExceededError as error:
    told["without a chief"] = type(error).__name__

rows = np.random.default_rng(0).random((60, 784), np.float32)
labels = np.eye(10, dtype=np.float32)[np.arange(60) % 10]
first, at_first = opened(0, rate=0.01)
def feed(graph):
    return {graph.images: rows, graph.labels: labels}
told["losses"] = [float(at_first.run(first.loss, feed(first)))]
second, at_second = opened(1)
told["seen by another"] = float(at_second.run(second.loss, feed(second)))
for _ in range(60):
    at_first.run(first.train, feed(first))
told["losses"].append(float(at_first.run(first.loss, feed(first))))
told["after training"], told["step"] = [each.item() for each in at_second.run([second.loss, second.step], feed(second))]
told["accuracy"] = float(at_second.run(second.accuracy, feed(second)))
again, at_again = opened(0, chief=False)  # a chief that comes back looks at what is there
told["after it came back"] = float(at_again.run(again.loss, feed(again)))
for session in (at_first, at_second, at_again):
    session.close()

# synchronous: a step is the mean of both workers, and one worker alone makes none
tf.compat.v1.Session.reset(servers["worker", 0].target)
chief, at_chief = opened(0, sync=True)
other, at_other = opened(1, sync=True)
applying = opened(0, sync=True, chief=False)
def apply_means():
    applying[1].run(applying[0].sync.first_tokens)
    try:
        while True:
            applying[1].run(applying[0].sync.apply_mean)
    except (tf.errors.OpError, RuntimeError) as error:  # the latter of a session that is closed already
        told["means end with"] = type(error).__name__
runs, ends = {0: 0, 1: 0}, []
def train(index, graph, session):
    try:
        while True:
            session.run(graph.train, feed(graph))
            runs[index] += 1
    except tf.errors.OutOfRangeError as error:
        ends.append(type(error).__name__)
jobs = [(apply_means,), (train, 0, chief, at_chief), (train, 1, other, at_other)]
threads = [threading.Thread(target=job[0], args=job[1:], daemon=True) for job in jobs]
for thread in threads:
    thread.start()
seen, deadline = opened(1, sync=True, chief=False), time.monotonic() + 60
while (steps := int(seen[1].run(seen[0].step))) < 5 and time.monotonic() < deadline:
    time.sleep(0.01)
told["steps together"] = steps
seen[1].run(seen[0].sync.end)
for thread in threads[1:]:
    thread.join(60)
applying[1].close()  # it may wait for gradients, which nobody makes any more
threads[0].join(60)
told["still waiting"] = [thread.is_alive() for thread in threads]
told["workers end with"], told["runs"] = ends, list(runs.values())
told["steps in the end"] = int(seen[1].run(seen[0].step))
print(json.dumps(told), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def told():
    """What the program has found."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return json.loads(ended.stdout)


def test_variables_are_on_the_parameter_servers_in_turn_and_a_worker_computes(told):
    assert set(told["places"].values()) == {"/job:ps/task:0", "/job:ps/task:1"}
    layers = {told["places"][name] for name in ("hidden/weights", "hidden/bias")}
    assert len(layers) == 2
    assert told["computes"] == "/job:worker/task:1"


def test_it_is_the_network_of_the_tutorial(told):
    wanted = {"hidden/weights": [784, 100], "hidden/bias": [100], "softmax/weights": [100, 10], "softmax/bias": [10]}
    assert {name: told["shapes"][name] for name in wanted} == wanted
    assert told["inputs"] == [["float32", [None, 784]], ["float32", [None, 10]]]
    assert not told["is sync"]


def test_who_is_no_chief_waits_until_the_chief_has_initialised_and_not_for_ever(told):
    assert told["without a chief"] == "DeadlineExceededError"
    assert told["seen by another"] == pytest.approx(told["losses"][0])


def test_all_tasks_train_one_model(told):
    before, after = told["losses"]
    assert before == pytest.approx(2.3, abs=0.4), "nothing is known of ten classes"
    assert after < 0.5 * before
    assert told["after training"] == pytest.approx(after)
    assert told["step"] == 60
    assert told["accuracy"] > 0.8


def test_a_chief_that_comes_back_finds_what_was_trained(told):
    assert told["after it came back"] == pytest.approx(told["losses"][1])


def test_a_synchronous_step_is_one_of_all_workers(told):
    assert told["steps together"] >= 5
    assert min(told["runs"]) > 0
    assert told["steps in the end"] <= sum(told["runs"]) / 2 + 1, "the mean of two gradients each; two may still wait"


def test_the_end_of_synchronous_training_wakes_whoever_waits(told):
    assert told["still waiting"] == [False] * 3
    assert told["workers end with"] == ["OutOfRangeError"] * 2
    assert told["means end with"] in ("CancelledError", "OutOfRangeError", "RuntimeError")
