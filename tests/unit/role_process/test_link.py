"""A role process's end of its socket, with the agent's end in the test."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dask_train.data.borrowing import borrow
from dask_train.data.rows import held_by
from dask_train.data.segment import Segment
from dask_train.data.stream import Stream
from dask_train.errors import ClosedError, DataError, StalledError
from dask_train.role_process import link as link_module
from dask_train.role_process.frames import MAX_DESCRIPTORS, FrameReader, encode
from dask_train.role_process.link import BUNDLE, SocketLink

STREAM = Stream(2, 0, 1, True, 7)


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

    def say(self, kind: str, *, descriptors: list[int] | None = None, **message: Any) -> None:
        if descriptors is not None:
            message["num_descriptors"] = len(descriptors)
        data = encode({"kind": kind, **message})
        for start in range(0, len(descriptors or ()), MAX_DESCRIPTORS):
            socket.send_fds(self.end, [data[:1]], descriptors[start : start + MAX_DESCRIPTORS])
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


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    """Calls something that waits for the agent."""
    with ThreadPoolExecutor(2) as threads:
        yield threads.submit


@pytest.fixture
def letters(pool, table_of) -> Iterator[Callable[..., dict[str, Any]]]:
    """What an agent sends of a data set of one partition, with these rows; the descriptors are closed in the end."""
    opened: list[int] = []

    def letter(*values: int) -> dict[str, Any]:
        segment = Segment([np.array(values)])
        descriptor = borrow([segment.place])
        assert descriptor is not None
        opened.append(descriptor)
        held = held_by([(0, 0, segment.place.offsets)], 1)
        return {"table": table_of([[np.array(values)]]), "held": held, "descriptors": [descriptor]}

    yield letter
    for descriptor in opened:
        os.close(descriptor)


def values(rows: Any, num_rows: int = 3) -> list[int]:
    out = np.zeros(num_rows, np.int64)
    rows.take(np.zeros(num_rows, np.int64), np.arange(num_rows), [out])
    return out.tolist()


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


def test_a_published_data_set_is_mapped(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.dataset, "mine")
    question = agent.next()
    assert question == {"kind": "dataset", "name": "mine", "question": question["question"]}
    letter = letters(4, 5, 6)
    agent.say("dataset", question=question["question"], number=3, error="", **letter)
    number, table, rows = opening.result(10)
    assert (number, table.num_rows, values(rows)) == (3, 3, [4, 5, 6])


def test_a_group_is_mapped_and_left(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.open_group, STREAM, 4, 3)
    question = agent.next()
    number = question.pop("question")
    assert question == {"kind": "group", "stream": STREAM, "group": 4, "needed_from": 3}
    agent.say("group", question=number, error="", **letters(7, 8, 9))
    assert values(opening.result(10)) == [7, 8, 9]
    link.leave(STREAM)
    assert agent.next() == {"kind": "left", "stream": STREAM}


def test_rows_come_from_elsewhere(ends, in_background):
    link, agent = ends
    partition, row = np.array([3, 1]), np.array([0, 5])
    fetching = in_background(link.rows_from_elsewhere, STREAM, partition, row)
    question = agent.next()
    assert (question["kind"], question["stream"]) == ("rows", STREAM)
    np.testing.assert_array_equal([question["partition"], question["row"]], [partition, row])
    agent.say("rows", question=question["question"], error="", columns=[np.array([[1.0], [2.0]]), np.array([1, 2])])
    x, y = fetching.result(10)
    assert (x.tolist(), y.tolist()) == ([[1.0], [2.0]], [1, 2])


def test_answers_find_who_has_asked(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.dataset, "mine")
    first = agent.next()
    fetching = in_background(link.rows_from_elsewhere, STREAM, np.arange(1), np.arange(1))
    second = agent.next()
    assert (first["kind"], second["kind"]) == ("dataset", "rows")
    agent.say("rows", question=second["question"], error="", columns=[np.array([7])])
    agent.say("stop", reason="in between")
    agent.say("dataset", question=first["question"], number=1, error="", **letters(1, 2, 3))
    assert fetching.result(10)[0].tolist() == [7]
    assert values(opening.result(10)[2]) == [1, 2, 3]


def test_data_come_with_their_own_descriptors(ends, letters):
    link, agent = ends
    for number in (1, 2):
        agent.say("go", **letters(number, number, number))
        agent.say("now")
    for number in (1, 2):
        assert values(link.mapped(link.expect("go"))) == [number] * 3
        link.expect("now")


def test_more_descriptors_than_a_message_may_have(ends):
    link, agent = ends
    pairs = [os.pipe() for _ in range(10)]
    sent = [pairs[number % 10][0] for number in range(2 * MAX_DESCRIPTORS + 20)]
    agent.say("go", descriptors=sent)
    agent.say("more", descriptors=sent[:3])
    for count, kind in ((len(sent), "go"), (3, "more")):
        came = link.expect(kind)["descriptors"]
        assert [os.fstat(each).st_ino for each in came] == [os.fstat(each).st_ino for each in sent[:count]]
        for descriptor in came:
            os.close(descriptor)
    for descriptor in sum(pairs, ()):
        os.close(descriptor)


def test_descriptors_are_closed_where_they_can_not_be_mapped(ends, letters):
    link, agent = ends
    ends_of_pipe = os.pipe()
    agent.say("go", **letters(1, 2, 3) | {"descriptors": [ends_of_pipe[0]]})
    answer = link.expect("go")
    with pytest.raises(OSError, match="can't be mapped"):
        link.mapped(answer)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(answer["descriptors"][0])
    for descriptor in ends_of_pipe:
        os.close(descriptor)


@pytest.mark.parametrize(
    "ask",
    [
        lambda link: link.dataset("mine"),
        lambda link: link.open_group(STREAM, 0, 0),
        lambda link: link.rows_from_elsewhere(STREAM, np.arange(1), np.arange(1)),
    ],
)
def test_data_that_cannot_be_had(ends, in_background, ask):
    link, agent = ends
    asking = in_background(ask, link)
    question = agent.next()
    agent.say(question["kind"], question=question["question"], error="It was released.")
    with pytest.raises(DataError, match="It was released"):
        asking.result(10)
    link.wait_at_most(0.01)
    with pytest.raises(StalledError, match=f"The agent did not answer with {question['kind']} within 0.01 s"):
        ask(link)


def test_an_answer_for_which_nobody_waits_any_more(ends, in_background):
    link, agent = ends
    link.wait_at_most(0.01)
    with pytest.raises(StalledError):
        link.dataset("mine")
    late = agent.next()["question"]
    link.wait_at_most(30.0)
    sent = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    fetching = in_background(link.rows_from_elsewhere, STREAM, np.arange(1), np.arange(1))
    question = agent.next()["question"]
    assert question != late
    agent.say("dataset", question=late, error="", descriptors=list(sent))
    agent.say("rows", question=question, error="", columns=[np.array([7])])
    assert fetching.result(10)[0].tolist() == [7]
    assert len(os.listdir("/proc/self/fd")) == before, "what came with it is closed"
    for descriptor in sent:
        os.close(descriptor)


def test_without_its_agent_the_process_ends(ends, exits, wait_for):
    link, agent = ends
    agent.end.close()
    wait_for(lambda: exits == [1], "the reader ends the process")
    link.tell("ended")
    wait_for(lambda: exits == [1, 1], "the writer ends the process")


def test_values_come_in_order_until_the_run_stops(ends, in_background):
    link, agent = ends
    link.send(b"mine")
    assert agent.next() == {"kind": "value", "value": b"mine"}
    with pytest.raises(StalledError, match="No value was sent to this role within 0 s"):
        link.receive(0)
    waiting = in_background(link.receive, None)
    for value in (b"a", b"b"):
        agent.say("value", value=value)
    assert waiting.result(10) == b"a"
    assert link.receive(10) == b"b"
    agent.say("stop", reason="enough")
    for _ in range(2):
        with pytest.raises(ClosedError, match="No value comes any more: enough"):
            link.receive(None)
