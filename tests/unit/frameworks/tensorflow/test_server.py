"""How a server is started, and how its process ends; TensorFlow is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.tensorflow import server
from dask_train.frameworks.tensorflow.server import SHARED_INTER_OP_THREADS, start_server
from dask_train.roles import AddressBook

BOOK = AddressBook(ps=["h:1"], worker=["h:2", "h:3"])


class OpError(Exception):
    """As TensorFlow's own."""


@pytest.fixture
def tensorflow(monkeypatch):
    """What servers it was asked for, or why it starts none."""
    made = SimpleNamespace(started=[], refusal=None, left=[])

    def serve(cluster, **asked):
        assert os.environ["TF_GRPC_REUSE_PORT"] == "1"
        if made.refusal:
            raise made.refusal
        made.started.append((cluster, asked))
        return "server"

    v1 = SimpleNamespace(ConfigProto=lambda **settings: settings)
    module = SimpleNamespace(
        compat=SimpleNamespace(v1=v1),
        distribute=SimpleNamespace(Server=serve),
        errors=SimpleNamespace(OpError=OpError),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    monkeypatch.setattr(server, "leave_without_teardown", lambda: made.left.append("quickly"))
    monkeypatch.setattr(server.os, "cpu_count", lambda: 2)
    monkeypatch.delenv("TF_GRPC_REUSE_PORT", raising=False)
    return made


@pytest.mark.parametrize(("ends", "threads"), [(True, 3), (False, SHARED_INTER_OP_THREADS)])
def test_a_server_has_threads_for_those_that_may_follow(tensorflow, ends, threads):
    assert start_server(BOOK, "worker", 1, process_ends_with_it=ends) == "server"
    ((cluster, asked),) = tensorflow.started
    assert (cluster, asked["job_name"], asked["task_index"], asked["start"]) == (BOOK.as_dict(), "worker", 1, True)
    assert asked["config"] == {"inter_op_parallelism_threads": threads}
    assert tensorflow.left == ["quickly"] * ends
    assert "TF_GRPC_REUSE_PORT" not in os.environ


@pytest.mark.parametrize("error", [OpError("no such address"), RuntimeError("could not start gRPC server")])
def test_a_port_that_can_not_be_bound_is_told_with_its_address(tensorflow, error):
    tensorflow.refusal = error
    with pytest.raises(LaunchError, match=rf"server of worker 1 could not start at h:3: {error}\. The address"):
        start_server(BOOK, "worker", 1, process_ends_with_it=True)
    assert "TF_GRPC_REUSE_PORT" not in os.environ
    assert server._starting.acquire(blocking=False), "another one may be started"
    server._starting.release()


def test_tensorflow_that_is_not_there_is_told(tensorflow, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(LaunchError, match=r"TensorFlow can't be imported for ps 0: .*'\.\[tensorflow\]'"):
        start_server(BOOK, "ps", 0, process_ends_with_it=True)


def test_a_process_that_a_nanny_has_started_ends_after_all_else_that_is_registered():
    program = """
import atexit, multiprocessing
from dask_train.frameworks.tensorflow.server import leave_without_teardown

class Teardown:
    def __del__(self):
        print("taken apart", flush=True)

leave_without_teardown()  # no nanny's: it ends as it would
multiprocessing.parent_process = lambda: "a nanny"
torn = Teardown()
leave_without_teardown()
atexit.register(print, "registered")
leave_without_teardown()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "registered\n"
