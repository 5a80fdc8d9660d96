"""What the adapter of TensorFlow says, and tells TensorFlow; nothing of it is imported."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.errors import DataError, LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.tensorflow import adapter
from dask_train.frameworks.tensorflow.adapter import TensorFlowFramework
from dask_train.roles import AddressBook

WITH_PS = {"ps": 1, "chief": 1, "worker": 1, "scorer": 1}
WITHOUT = {"worker": 2, "scorer": 1, "logger": 1}


def info(role, rank=0, counts=WITHOUT):
    return RoleInfo(role=role, rank=rank, counts=counts, host="127.0.0.1", num_threads=2)


@pytest.fixture
def servers(monkeypatch):
    """The servers that were started."""
    started = []

    def start_server(book, job, index, *, process_ends_with_it):
        assert process_ends_with_it
        started.append((job, index))
        return f"server of {job} {index}"

    monkeypatch.setattr(adapter, "start_server", start_server)
    monkeypatch.setenv("TF_CONFIG", "of another cluster")
    return started


def test_tensorflow_that_uses_no_device_is_told(monkeypatch):
    for found, lack in (["/physical_device:GPU:0"], ""), ([], "TensorFlow lists no physical device of type GPU"):
        config = SimpleNamespace(list_physical_devices=lambda kind, found=found: found if kind == "GPU" else ["CPU"])
        monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
        assert TensorFlowFramework().lack_of_device() == lack


def peers_of(counts):
    return AddressBook({role: [f"{role}{rank}:1" for rank in range(count)] for role, count in counts.items()})


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"ps": 2}, "only ps=2: nobody would train"),
        ({}, "no role: nobody would train"),
        ({"chief": 2}, "chief=2 with framework='tensorflow': TensorFlow takes one chief at most"),
    ],
)
def test_roles_that_can_not_be_served_are_refused(counts, text):
    with pytest.raises(ValueError, match=text):
        TensorFlowFramework().check(counts)


def test_what_a_loss_and_an_end_mean():
    framework = TensorFlowFramework()
    framework.check(WITH_PS)
    assert [framework.agrees_every_step(counts) for counts in (WITH_PS, WITHOUT, {"worker": 1})] == [False, True, False]
    assert [framework.stays_until_the_end(counts) for counts in (WITH_PS, WITHOUT)] == [True, False]
    assert [framework.can_replace(role) for role in ("ps", "worker", "scorer")] == [False, True, True]


def test_tensorflow_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(LaunchError, match=r"TensorFlow can't be imported for worker 1: .*'\.\[tensorflow\]'"):
        TensorFlowFramework().load(info("worker", 1))


@pytest.mark.parametrize(
    ("role", "counts", "task", "server"),
    [
        ("ps", WITH_PS, "ps", "at once"),
        ("worker", WITH_PS, "worker", "at once"),
        ("chief", WITH_PS, "chief", "when asked"),
        ("scorer", WITH_PS, "evaluator", None),
        ("worker", WITHOUT, "worker", "when asked"),
        ("scorer", WITHOUT, "evaluator", None),
        ("logger", WITHOUT, None, None),
    ],
)
def test_each_role_is_told_of_the_cluster_and_has_its_server(servers, role, counts, task, server):
    in_cluster = [each for each in counts if each not in ("scorer", "logger")]
    before = dict(os.environ)
    with TensorFlowFramework().rendezvous(info(role, counts=counts), peers_of(counts), 1.0) as extras:
        assert extras["cluster_spec"].jobs == in_cluster
        told = json.loads(os.environ.get("TF_CONFIG", "null"))
        assert (told and told["task"]) == (task and {"type": task, "index": 0})
        assert told is None or [*told["cluster"]] == in_cluster
        assert servers == ([(role, 0)] if server == "at once" else [])
        assert (os.environ.get("TF_GRPC_REUSE_PORT") == "1") == (server == "when asked")
        if server == "when asked":
            assert {extras["server"](), extras["server"]()} == {f"server of {role} 0"}
            assert servers == [(role, 0)]
        else:
            assert extras["server"] == (server and f"server of {role} 0")
    assert dict(os.environ) == before


def test_threads_that_ask_for_it_at_the_same_time_get_one_server(servers, monkeypatch):
    is_starting, goes_on = threading.Event(), threading.Event()

    def slow(book, job, index, **_):
        servers.append((job, index))
        is_starting.set()
        goes_on.wait(60)
        return object()

    monkeypatch.setattr(adapter, "start_server", slow)
    rendezvous = TensorFlowFramework().rendezvous(info("worker"), peers_of(WITHOUT), 1.0)
    with rendezvous as extras, ThreadPoolExecutor(2) as pool:
        first = pool.submit(extras["server"])
        is_starting.wait(60)
        second = pool.submit(extras["server"])
        assert wait([second], timeout=0.1).not_done, "or it starts another"
        goes_on.set()
        assert first.result(60) is second.result(60)
    assert servers == [("worker", 0)]


@pytest.mark.parametrize("asks", [True, False])
def test_the_port_is_held_until_a_server_has_it_or_the_end(servers, monkeypatch, asks):
    framework, me = TensorFlowFramework(), info("worker")
    monkeypatch.setattr(framework, "load", lambda me: None)
    address = framework.prepare(me)
    holder = framework._port_holder
    assert address == f"127.0.0.1:{holder.getsockname()[1]}"
    with framework.rendezvous(me, AddressBook(worker=[address, "h:1"]), 1.0) as extras:
        if asks:
            extras["server"]()
        assert (holder.fileno() == -1) == asks
    assert holder.fileno() == -1
    assert framework.prepare(info("scorer")) == ""


def test_one_alone_in_the_clients_process_has_no_cluster_and_no_server(servers):
    before = dict(os.environ)
    with TensorFlowFramework().alone(info("worker")) as extras:
        assert "TF_CONFIG" not in os.environ
        assert extras["cluster_spec"] == {}
        with pytest.raises(ValueError, match=r"a server of TensorFlow can't be stopped.*roles=\{'worker': 1\}"):
            extras["server"]()
    assert (dict(os.environ), servers) == (before, [])


@pytest.fixture
def tensorflow(monkeypatch):
    """Shares numbers, copies text, and has no dates."""

    def convert(array):
        if array.dtype.kind == "M":
            raise ValueError("Unsupported numpy type")
        return ("copied", array)

    made = SimpleNamespace(executing_eagerly=lambda: True, convert_to_tensor=convert)
    monkeypatch.setitem(sys.modules, "tensorflow", made)
    monkeypatch.setattr(adapter, "shared_tensor", lambda array: ("shared", array) if array.dtype.kind == "i" else None)
    return made


def test_batches_are_shared_or_copied_or_refused(tensorflow):
    numbers, text = np.arange(2), np.array(["a", "b"])
    assert TensorFlowFramework().to_batch((numbers, text)) == (("shared", numbers), ("copied", text))
    with pytest.raises(DataError, match=r"A column of datetime64\[s\] can't become a TensorFlow tensor: Unsupported"):
        TensorFlowFramework().to_batch((np.zeros(2, "M8[s]"),))
    tensorflow.executing_eagerly = lambda: False
    arrays = (numbers, text)
    assert TensorFlowFramework().to_batch(arrays) is arrays
