"""A role process's end of its socket, with the agent's end in the test."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import numpy as np
import pytest

from dask_train.data.columns import Column, Layout
from dask_train.errors import DataError, StalledError
from dask_train.role_process import link as link_module
from dask_train.role_process.frames import FrameReader, encode
from dask_train.role_process.link import BUNDLE, SocketLink

LAYOUT = Layout(columns=(Column(dtype="<i8", row_shape=()),), names=None, is_tuple=False, lengths=(3,))


class Agent:
    """The other end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.end.settimeout(10)
        self._reader = FrameReader()
        self._messages: list[dict[str, Any]] = []

    def next(self, *kinds: str) -> dict[str, Any]:
        """The next message that is no progress, or of these kinds."""
        while True:
            while self._messages:
                message = self._messages.pop(0)
                if message["kind"] in kinds or (not kinds and message["kind"] != "progress"):
                    return message
            data = self.end.recv(1 << 16)
            assert data, "the link has ended"
            self._messages += self._reader.feed(data)

    def say(self, kind: str, *descriptors: int, **message: Any) -> None:
        data = encode({"kind": kind, **message})
        if descriptors:
            socket.send_fds(self.end, [data[:1]], list(descriptors))
            data = data[1:]
        self.end.sendall(data)


@pytest.fixture
def exits(monkeypatch):
    """Statuses with which the process would have ended; its threads end instead."""
    statuses: list[int] = []

    def leave(status: int) -> None:
        statuses.append(status)
        raise SystemExit

    told = threading.excepthook
    monkeypatch.setattr(threading, "excepthook", lambda it: None if it.exc_type is SystemExit else told(it))
    monkeypatch.setattr(link_module.os, "_exit", leave)
    return statuses


@pytest.fixture
def ends(exits, no_leaks):
    """A link, and its agent."""
    with no_leaks():
        ours, theirs = socket.socketpair()
        threads = set(threading.enumerate())
        link = SocketLink(ours)
        started = set(threading.enumerate()) - threads
        yield link, Agent(theirs)
        link.close()
        theirs.close()
        for thread in started:
            thread.join(10)
        ours.close()


def memory(*values: int) -> int:
    descriptor = os.memfd_create("data")
    os.truncate(descriptor, LAYOUT.size_bytes)
    os.pwrite(descriptor, np.array(values).tobytes(), 0)
    return descriptor


def test_messages_arrive_in_order_with_the_scores_before_them(ends):
    link, agent = ends
    link.tell("ready", pid=1)
    assert agent.next() == {"kind": "ready", "pid": 1}
    link.report({"loss": 1.0})
    link.report({"loss": 0.5})
    link.tell("ended", result=b"r")
    scores: list[dict[str, Any]] = []
    while (message := agent.next())["kind"] == "scores":
        scores += message["scores"]
    assert scores == [{"loss": 1.0}, {"loss": 0.5}]
    assert message == {"kind": "ended", "result": b"r"}


def test_many_scores_come_in_bundles(ends):
    link, agent = ends
    with link._lock:  # the writer can't take them one by one
        for step in range(2 * BUNDLE + 1):
            link._scores.append({"step": step})
        link._lock.notify()
    sizes, steps = [], []
    while len(steps) <= 2 * BUNDLE:
        scores = agent.next()["scores"]
        sizes.append(len(scores))
        steps += [score["step"] for score in scores]
    assert steps == list(range(2 * BUNDLE + 1))
    assert sizes == [BUNDLE, BUNDLE, 1]


def test_progress_is_told_with_what_the_role_does(ends):
    link, agent = ends
    link.moved("working on batch 1", batches=1)
    link.moved("working on batch 2", batches=1)
    link.tell("now")
    message = agent.next("progress")
    assert (message["steps"], message["doing"]) == (2, "working on batch 2")
    link.report({"loss": 1.0})
    assert agent.next("progress")["steps"] == 2, "a report is progress too"


def test_progress_is_told_by_itself(ends, monkeypatch):
    monkeypatch.setattr(link_module, "PROGRESS_INTERVAL_S", 0.01)
    link, agent = ends
    link.tell("now")
    agent.next()
    link.moved("working on batch 1", batches=1)
    assert agent.next("progress")["steps"] == 1


def test_what_is_left_is_sent_when_it_closes(ends):
    link, agent = ends
    for number in range(100):
        link.report({"number": number})
        link.tell("word", number=number)
    link.close()
    words = [agent.next("word")["number"] for _ in range(100)]
    assert words == list(range(100))


def test_a_stop_wakes_who_waits_for_it(ends):
    link, agent = ends
    assert link.stop_reason == ""
    waiting = threading.Thread(target=link.wait_until_stopped)
    waiting.start()
    agent.say("stop", reason="loss < 0.1")
    waiting.join(10)
    assert not waiting.is_alive()
    assert link.stop_reason == "loss < 0.1"


def test_a_stop_without_a_reason_is_one(ends):
    link, agent = ends
    agent.say("stop", reason="")
    link.wait_until_stopped()
    assert link.stop_reason == "the run stops"


def test_a_role_asks_to_stop(ends):
    link, agent = ends
    link.ask_to_stop("enough")
    assert agent.next() == {"kind": "stop", "reason": "enough"}


def test_answers_come_in_turn(ends):
    link, agent = ends
    agent.say("start", attempt=1)
    agent.say("go", peers={})
    assert link.expect("start")["attempt"] == 1
    with pytest.raises(AssertionError, match="go"):
        link.expect("start")


def test_an_answer_that_does_not_come(ends):
    link, _ = ends
    with pytest.raises(StalledError, match=r"The agent did not answer with dataset within 0.01 s"):
        link.expect("dataset", 0.01)


def test_a_published_data_set_is_mapped(ends):
    link, agent = ends
    descriptor = memory(4, 5, 6)
    agent.say("dataset", descriptor, number=3, layout=LAYOUT, error="")
    os.close(descriptor)
    number, layout, (column,) = link.dataset("mine")
    assert number == 3
    assert agent.next() == {"kind": "dataset", "name": "mine"}
    assert (layout, column.tolist()) == (LAYOUT, [4, 5, 6])


def test_data_come_with_their_own_descriptors(ends):
    link, agent = ends
    for number, kind in ((1, "go"), (2, "dataset")):
        descriptor = memory(number, number, number)
        agent.say(kind, descriptor, layout=LAYOUT, error="")
        os.close(descriptor)
    for number, kind in ((1, "go"), (2, "dataset")):
        assert link.columns(link.expect(kind)["layout"])[0].tolist() == [number] * 3


def test_a_data_set_that_cannot_be_opened(ends):
    link, agent = ends
    agent.say("dataset", layout=b"", error="There is no data set 'mine'.")
    with pytest.raises(DataError, match="There is no data set 'mine'"):
        link.dataset("mine")
    link.wait_at_most(0.01)
    with pytest.raises(StalledError, match=r"dataset within 0.01 s"):
        link.dataset("mine")


def test_without_its_agent_the_process_ends(ends, exits, wait_for):
    link, agent = ends
    agent.end.close()
    wait_for(lambda: exits == [1], "the reader ends the process")
    link.tell("ended")
    wait_for(lambda: exits == [1, 1], "the writer ends the process")
