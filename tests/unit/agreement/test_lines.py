"""Lines between two processes: messages, arrays, ends that go, and who is not answered."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from dask_train.agreement.dialling import dial, listeners
from dask_train.agreement.layout import Slot
from dask_train.agreement.lines import ask
from dask_train.agreement.memory_lines import dial_in_memory
from dask_train.agreement.network import Credentials
from dask_train.agreement.network_lines import dial_over_network
from dask_train.errors import LaunchError, StalledError
from dask_train.frameworks.tensorflow.ports import hold_port

SLOT = Slot([((3, 2), "f4"), ((), "i8"), ((0,), "f8")])
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
    """Listens, and answers everybody in a thread each."""

    def __init__(self, address, credentials):
        self.listeners, self.lines, self.refused = listeners(address, SLOT, credentials), [], []
        self.threads = [threading.Thread(target=self.listen, args=(listener,)) for listener in self.listeners]
        for thread in self.threads:
            thread.start()

    def listen(self, listener):
        while True:
            try:
                connection = listener.accept()
            except OSError:
                return
            try:
                self.lines.append(listener.answer(connection))
            except (EOFError, OSError, LaunchError) as error:
                self.refused.append(error)
                connection.close()

    def close(self):
        for one in (*self.listeners, *self.lines):
            one.close()
        for thread in self.threads:
            thread.join(5)


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
        ask([line[0]], "who", 0.05)


def test_nobody_listens(address, known):
    with pytest.raises(LaunchError, match=r"Nobody answers as 127.0.0.1:\d+ on this host"):
        dial_in_memory(address, SLOT, 0.05)
    with pytest.raises(LaunchError, match=r"No connection to the role at 127.0.0.1:\d+: .*[Rr]efused"):
        dial_over_network(address, SLOT, known["tcp"][1], 0.05)


@pytest.mark.parametrize("stranger", ["another run", "no certificate", "another cluster's certificate"])
def test_a_stranger_is_not_answered(opened, address, known, stranger, wait_for):
    there = opened(known["tcp" if stranger == "another run" else "tls"][1])
    credentials = {
        "another run": Credentials(key=b"another"),
        "no certificate": known["tcp"][1],
        "another cluster's certificate": known["another cluster's"][1],
    }[stranger]
    with pytest.raises(LaunchError, match=r"does not know the run|No connection to the role"):
        dial_over_network(address, SLOT, credentials, 5.0)
    wait_for(lambda: there.refused, "it was refused")
    assert not there.lines
