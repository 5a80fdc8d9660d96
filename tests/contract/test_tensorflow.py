"""The TensorFlow adapter with parameter servers and without, in processes of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from dask_train.frameworks.tensorflow.adapter import TensorFlowFramework
from dask_train.roles import AddressBook
from dask_train.testing import FrameworkTests, RoleProcesses, RoleSession


class TestWithParameterServers(FrameworkTests):
    """A worker's session puts a variable on the ps; the chief, through a server of its own, and the scorer read it."""

    counts: ClassVar = {"ps": 1, "chief": 1, "worker": 1, "scorer": 1}
    refused = (
        ({"ps": 2}, "only ps=2: nobody would train"),
        ({}, "no role: nobody would train"),
        ({"chief": 2, "worker": 1}, "chief=2 with framework='tensorflow': TensorFlow takes one chief at most"),
    )
    loads = ("tensorflow", "keras", "torch")
    gives = frozenset({"cluster_spec", "server"})

    def framework(self) -> TensorFlowFramework:
        return TensorFlowFramework()

    @staticmethod
    def together(session: RoleSession) -> Any:
        import json
        import os
        import time

        import tensorflow as tf

        ps = session.cluster_spec.task_address("ps", 0)
        target = session.server.target if session.server else f"grpc://{ps}"
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            variable = tf.compat.v1.get_variable("shared", (), tf.int32, tf.compat.v1.zeros_initializer())
            there = tf.compat.v1.report_uninitialized_variables([variable])
            with tf.compat.v1.Session(target) as graph:
                if session.me.role == "worker":
                    graph.run(variable.initializer)
                    graph.run(variable.assign_add(7))
                while graph.run(there).size or not graph.run(variable):
                    time.sleep(0.05)
                value = int(graph.run(variable))
        config = json.loads(os.environ["TF_CONFIG"])
        return value, config["task"], sorted(config["cluster"]), bool(session.server)

    def check_together(self, values: Any) -> None:
        cluster = ["chief", "ps", "worker"]
        assert values == {
            ("chief", 0): (7, {"type": "chief", "index": 0}, cluster, True),
            ("worker", 0): (7, {"type": "worker", "index": 0}, cluster, True),
            ("scorer", 0): (7, {"type": "evaluator", "index": 0}, cluster, False),
        }


class TestWithoutParameterServers(FrameworkTests):
    """``MultiWorkerMirroredStrategy`` serves at the ports that were held, and all-reduces."""

    counts: ClassVar = {"worker": 2, "scorer": 1}
    loads = ("tensorflow", "keras", "torch")
    gives = frozenset({"cluster_spec", "server"})

    def framework(self) -> TensorFlowFramework:
        return TensorFlowFramework()

    @staticmethod
    def together(session: RoleSession) -> Any:
        import json
        import os

        import numpy as np
        import psutil
        import tensorflow as tf

        task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
        if session.me.role == "scorer":
            return task, session.server, session.cluster_spec.num_tasks("worker")
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        mine = tf.constant(1.0 + session.me.rank)

        @tf.function
        def step() -> Any:
            return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", mine))

        total = float(step())
        (batch,) = session.framework.to_batch((np.ones(3, np.float32),))
        listening = {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        told = int(session.cluster_spec.task_address("worker", session.me.rank).rpartition(":")[2])
        threads = tf.config.threading.get_intra_op_parallelism_threads(), os.environ["TF_NUM_INTRAOP_THREADS"]
        return task, total, strategy.num_replicas_in_sync, float(sum(batch)), told in listening, threads

    def check_together(self, values: Any) -> None:
        trained = ("worker", 3.0, 2, 3.0, True, (0, "1"))
        assert values == {("worker", 0): trained, ("worker", 1): trained, ("scorer", 0): ("evaluator", None, 2)}


def look_at_memory(session: RoleSession) -> Any:
    """Whether a tensor shows what is written to its array later: aligned, not aligned, read-only."""
    import numpy as np

    shared = []
    for offset, writable in ((0, True), (16, True), (0, False)):
        memory = np.zeros(256, np.uint8)
        start = -memory.ctypes.data % 64 + offset
        array = memory[start : start + 64].view(np.float32)
        given = array.view()
        given.flags.writeable = writable
        (tensor,) = session.framework.to_batch((given,))
        array[0] = 5.0
        shared.append(float(tensor[0]) == 5.0)
    text = session.framework.to_batch((np.array(["a", "bc"]),))[0].numpy().tolist()
    try:
        session.framework.to_batch((np.zeros(2, "datetime64[s]"),))
    except Exception as error:
        return shared, text, f"{type(error).__name__}: {error}"
    return None


def test_memory_is_shared_where_it_is_aligned_and_text_becomes_bytes():
    with RoleProcesses(TensorFlowFramework(), {"worker": 1}, lambda _: look_at_memory) as processes:
        processes.meet(("worker", 0), processes.addresses(), timeout_s=20.0)
        answer = processes.answer(("worker", 0))
    shared, text, refusal = answer.value
    assert shared == [True, False, False]
    assert text == [b"a", b"bc"]
    assert refusal.startswith("DataError: A column of datetime64[s] can't become a TensorFlow tensor")


def start_its_server(session: RoleSession) -> Any:
    """Start the server that only starts when it is asked for."""
    import os

    before = os.environ.get("TF_GRPC_REUSE_PORT")
    assert session.extras["server"]() is session.extras["server"]()
    return before, os.environ.get("TF_GRPC_REUSE_PORT"), session.server.target.rpartition(":")[2], session.cluster_spec


def test_a_server_starts_once_when_it_is_asked_for():
    with RoleProcesses(TensorFlowFramework(), {"worker": 1, "loader": 1}, lambda _: start_its_server) as processes:
        addresses = processes.addresses()
        processes.meet(("worker", 0), addresses, timeout_s=20.0)
        answer = processes.answer(("worker", 0))
    port = addresses["worker"][0].rpartition(":")[2]
    assert answer.error is None
    assert answer.value == ("1", None, port, AddressBook(worker=addresses["worker"]))
    assert addresses["loader"] == [""], "a strategy refuses a cluster with a job that it doesn't know"


def test_who_agrees_and_who_can_be_replaced():
    framework = TensorFlowFramework()
    assert framework.agrees_every_step({"worker": 2})
    assert not framework.agrees_every_step({"worker": 2, "ps": 1})
    assert not framework.agrees_every_step({"worker": 1, "scorer": 1})
    assert [framework.can_replace(role) for role in ("ps", "worker", "scorer")] == [False, True, True]


def coordinate(session: RoleSession) -> Any:
    """A chief with TensorFlow's own coordinator, whose strategy starts the chief's server."""
    import tensorflow as tf

    if session.me.role == "worker":
        return session.wait_until_stopped()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(1.0)

    @tf.function
    def step() -> Any:
        variable.assign_add(2.0)

    coordinator.schedule(step)
    coordinator.join()
    return float(variable)


def test_a_chief_may_coordinate():
    counts: ClassVar = {"ps": 1, "chief": 1, "worker": 1}
    framework = TensorFlowFramework()
    with RoleProcesses(framework, counts, lambda role: framework.default_role(role) or coordinate) as processes:
        addresses = processes.addresses()
        for role in counts:
            processes.meet((role, 0), addresses, timeout_s=20.0)
        answer = processes.answer(("chief", 0))
    assert answer.error is None
    assert answer.value == 3.0


def test_a_server_at_an_ipv6_address():
    with RoleProcesses(TensorFlowFramework(), {"worker": 1}, lambda _: start_its_server, host="::1") as processes:
        addresses = processes.addresses()
        processes.meet(("worker", 0), addresses, timeout_s=20.0)
        answer = processes.answer(("worker", 0))
    assert addresses["worker"][0].startswith("[::1]:")
    assert answer.error is None
