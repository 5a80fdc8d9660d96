"""Lines between two processes: messages, arrays, ends that go, and who is not answered."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dask_train.errors import LaunchError, StalledError
from dask_train.frameworks.ports import hold_port
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.channels import ask
from dask_train.transport.connections import Credentials
from dask_train.transport.dialling import dial, dial_in_memory, dial_over_network, receptions

SLOT = ArraySlot([((3, 2), "f4"), ((), "i8"), ((0,), "f8")])
HERE, ELSEWHERE = "127.0.0.1", "10.0.0.2"


@pytest.fixture(scope="module")
def known(make_certificates):
    paths, stranger = make_certificates(), make_certificates()
    text = {name: Path(path).read_text() for name, path in paths.items()}
    return {
        "memory": (HERE, Credentials(key=b"run")),
        "tcp": (ELSEWHERE, Credentials(key=b"run")),
        "tls": (ELSEWHERE, Credentials(key=b"run", tls=paths)),
        "tls from text": (ELSEWHERE, Credentials(key=b"run", tls=text)),
        "another cluster's": (ELSEWHERE, Credentials(key=b"run", tls=stranger)),
    }


@pytest.fixture
def address():
    with hold_port() as port:
        yield f"{HERE}:{port.getsockname()[1]}"


class Open:
    """Receives everybody who knows the run."""

    def __init__(self, address, credentials):
        self.receptions, self.lines = receptions(address, SLOT, credentials), []
        self.threads = [threading.Thread(target=self.receive, args=(one,)) for one in self.receptions]
        for thread in self.threads:
            thread.start()

    def receive(self, reception):
        while True:
            try:
                self.lines.append(reception.next())
            except OSError:
                return

    def close(self):
        for one in (*self.receptions, *self.lines):
            one.close()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def opened(address):
    made = []

    def make(credentials):
        made.append(Open(address, credentials))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not any(thread.is_alive() for thread in one.threads)


@pytest.fixture(params=["memory", "tcp", "tls", "tls from text"])
def line(request, known, opened, address, wait_for):
    """A line from both its ends: who has dialled, who has listened."""
    host, credentials = known[request.param]
    there = opened(credentials)
    dialled = dial(address, SLOT, host, credentials, 5.0)
    yield dialled, wait_for(lambda: there.lines, "it is answered")[0]
    dialled.close()


def test_arrays_and_messages_go_both_ways(line):
    dialled, listened = line
    for out, into in ((dialled, listened), (listened, dialled)):
        out.put(0, [np.arange(6).reshape(3, 2), 7, np.empty(0)])
        out.send({"order": 1, "big": b"x" * 50_000}) if out is listened else out.send(("order", 1))
        told = into.receive(5.0)
        assert told == ("order", 1) or len(told["big"]) == 50_000
        np.testing.assert_array_equal(into.into[0], np.arange(6).reshape(3, 2))
        assert (int(into.into[1]), into.into[0].dtype, into.into[0].ctypes.data % 64) == (7, "float32", 0)
        out.put(1, [8])
        out.send("a part of them")
        assert into.receive(5.0) == "a part of them"
        assert (int(into.into[1]), into.into[0][2, 1]) == (8, 5)


def test_an_end_that_goes(line):
    dialled, listened = line
    dialled.close()
    with pytest.raises((EOFError, ConnectionError)):
        listened.receive(5.0)


def test_one_that_does_not_answer(line):
    with pytest.raises(StalledError, match=r"did not answer within 0.05 s. .* run.diagnose\(\)"):
        ask([line[0]], ["who"], 0.05)


def test_nobody_listens(address, known):
    with pytest.raises(LaunchError, match=r"Nobody answers as 127.0.0.1:\d+ on this host"):
        dial_in_memory(address, SLOT, known["memory"][1], 0.05)
    with pytest.raises(LaunchError, match=r"No connection to the role at 127.0.0.1:\d+: .*[Rr]efused"):
        dial_over_network(address, SLOT, known["tcp"][1], 0.05)


@pytest.mark.parametrize("stranger", ["another run", "no certificate", "another cluster's certificate"])
def test_a_stranger_is_not_answered(opened, address, known, stranger):
    there = opened(known["tcp" if stranger == "another run" else "tls"][1])
    credentials = {
        "another run": Credentials(key=b"another"),
        "no certificate": known["tcp"][1],
        "another cluster's certificate": known["another cluster's"][1],
    }[stranger]
    with pytest.raises(LaunchError, match=r"does not know the run|No connection to the role"):
        dial_over_network(address, SLOT, credentials, 5.0)
    assert not there.lines


FEW_DESCRIPTORS = """
import os, resource, sys
from dask_train.transport.dialling import receptions
from dask_train.transport.connections import Credentials
from dask_train.transport.array_layout import ArraySlot

SLOT = ArraySlot([((3, 2), "f4"), ((), "i8"), ((0,), "f8")])
memory, network = receptions(sys.argv[1], SLOT, Credentials(key=b"run"))
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12,) * 2)
print("listens", flush=True)
line = (memory if sys.argv[2] == "memory" else network).next(60.0)
line.send(line.receive(60.0))
"""


@pytest.mark.parametrize("way", ["memory", "tcp"])
def test_descriptors_that_run_out(address, known, way):
    """Strangers take all that there are, and stay; who belongs to the run comes in all the same."""
    host, credentials = known[way]
    command = [sys.executable, "-c", FEW_DESCRIPTORS, address, way]
    with contextlib.ExitStack() as stack:
        there = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(there.kill)
        assert there.stdout.readline() == "listens\n"
        for _ in range(40):
            stack.enter_context(socket.create_connection((HERE, int(address.rpartition(":")[2]))))
        line = dial(address, SLOT, host, credentials, 60.0)
        stack.callback(line.close)
        line.send("is anybody there?")
        assert line.receive(60.0) == "is anybody there?"
