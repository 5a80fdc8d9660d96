"""Lines between two processes: messages, arrays, and ends that go."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from dask_train.agreement.layout import Slot
from dask_train.agreement.lines import Listener, ask, dial, filled
from dask_train.errors import LaunchError, StalledError

SLOT = Slot([((3, 2), "f4"), ((), "i8"), ((0,), "f8")])


@pytest.fixture
def address():
    return f"10.0.0.1:{os.getpid()}-{threading.get_ident()}"


@pytest.fixture
def lines(address):
    """A line from both its ends: who has dialled, who has listened."""
    listener, found = Listener(address, SLOT), []
    accepting = threading.Thread(target=lambda: found.append(listener.accept()))
    accepting.start()
    dialled = dial(address, SLOT, 5.0)
    accepting.join()
    yield dialled, found[0]
    for one in (dialled, found[0], listener):
        one.close()


def test_arrays_and_messages_go_both_ways(lines):
    dialled, listened = lines
    for out, into in ((dialled, listened), (listened, dialled)):
        filled(out.out, [np.arange(6).reshape(3, 2), 7, np.empty(0)])
        out.send({"order": 1, "big": b"x" * 50_000}) if out is listened else out.send(("order", 1))
        told = into.receive(5.0)
        assert told == ("order", 1) or len(told["big"]) == 50_000
        np.testing.assert_array_equal(into.into[0], np.arange(6).reshape(3, 2))
        assert (int(into.into[1]), into.into[0].dtype, into.into[0].ctypes.data % 64) == (7, "float32", 0)


def test_an_end_that_goes(lines):
    dialled, listened = lines
    dialled.close()
    with pytest.raises(EOFError):
        listened.receive(5.0)


def test_one_that_does_not_answer(lines):
    with pytest.raises(StalledError, match=r"did not answer within 0.05 s. .* run.diagnose\(\)"):
        ask([lines[0]], "who", 0.05)


def test_nobody_listens(address):
    with pytest.raises(LaunchError, match=r"Nobody answers as 10.0.0.1:.* share a host"):
        dial(address, SLOT, 0.05)


def test_a_closed_listener_ends_who_waits(address):
    listener, ended = Listener(address, SLOT), []

    def wait():
        try:
            listener.accept()
        except OSError:
            ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    listener.close()
    waiting.join(5)
    assert ended == [True]
