"""A role process's end of its socket, with the agent's end in the test."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from dask_train.data.borrowing import borrow
from dask_train.data.parcel import Parcel
from dask_train.data.rows import held_by
from dask_train.data.segment import Segment
from dask_train.data.stream import Stream
from dask_train.errors import ClosedError, DataError, StalledError
from dask_train.process.messages import (
    Answer,
    BeginRole,
    CallFunction,
    DataSetWanted,
    GroupWanted,
    Mapped,
    Notice,
    Progress,
    Reported,
    RowsWanted,
    StreamLeft,
    Value,
)
from dask_train.role import link as link_module
from dask_train.role.link import BUNDLE, SocketLink
from dask_train.run.messages import (
    CannotGoOn,
    Ended,
    Meets,
    Message,
    Met,
    PeerLost,
    Ready,
    Resize,
    Shared,
    Started,
    Stop,
)
from dask_train.transport.frames import MAX_DESCRIPTORS, FrameReader, descriptors_of, encode

STREAM = Stream(2, 0, 1, True, 7)


class Agent:
    """The other end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.end.settimeout(10)
        self._reader = FrameReader()
        self._messages: list[Message] = []

    def next(self, *kinds: type[Message]) -> Any:
        """The next message that is no progress, or of these kinds."""
        while True:
            while self._messages:
                message = self._messages.pop(0)
                if isinstance(message, kinds) or (not kinds and not isinstance(message, Progress)):
                    return message
            data = self.end.recv(1 << 16)
            assert data, "the link has ended"
            self._messages += self._reader.feed(data)

    def say(self, message: Message) -> None:
        data, descriptors = encode(message), descriptors_of(message)
        for start in range(0, len(descriptors), MAX_DESCRIPTORS):
            socket.send_fds(self.end, [data[:1]], list(descriptors[start : start + MAX_DESCRIPTORS]))
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
            thread.join(60)
            assert not thread.is_alive()
        ours.close()


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    """Calls something that waits for the agent."""
    with ThreadPoolExecutor(2) as threads:
        yield threads.submit


@pytest.fixture
def letters(pool, table_of) -> Iterator[Callable[..., Mapped]]:
    """What an agent sends of a data set of one partition, with these rows; the descriptors are closed in the end."""
    opened: list[int] = []

    def letter(*values: int) -> Mapped:
        segment = Segment([np.array(values)])
        descriptor = borrow([segment.place])
        assert descriptor is not None
        opened.append(descriptor)
        held = held_by([(0, 0, segment.place)], 1)
        return Mapped(table=table_of([[np.array(values)]]), held=held, descriptors=[descriptor])

    yield letter
    for descriptor in opened:
        os.close(descriptor)


def begin(attempt: int = 0) -> BeginRole:
    return BeginRole(me=None, attempt=attempt, framework=b"", function=Parcel(pickle=b""), checkpoint=None, scratch="")


def enter(data: Mapped | None) -> CallFunction:
    return CallFunction(peers={}, timeout_s=1.0, data_timeout_s=1.0, data=data)


def values(rows: Any, num_rows: int = 3) -> list[int]:
    out = np.zeros(num_rows, np.int64)
    rows.take(np.zeros(num_rows, np.int64), np.arange(num_rows), [out])
    return out.tolist()


def test_messages_arrive_in_order_with_the_scores_before_them(ends):
    link, agent = ends
    link.tell(Ready(pid=1, peer=""))
    assert agent.next() == Ready(pid=1, peer="")
    link.report({"loss": 1.0})
    link.report({"loss": 0.5})
    link.tell(Ended(result=b"r"))
    scores: list[dict[str, Any]] = []
    while isinstance(message := agent.next(), Reported):
        scores += message.scores
    assert scores == [{"loss": 1.0}, {"loss": 0.5}]
    assert message == Ended(result=b"r")


def test_many_scores_come_in_bundles(ends):
    link, agent = ends
    with link._lock:  # the writer can't take them one by one
        for step in range(2 * BUNDLE + 1):
            link._scores.append({"step": step})
        link._lock.notify()
    sizes, steps = [], []
    while len(steps) <= 2 * BUNDLE:
        scores = agent.next().scores
        sizes.append(len(scores))
        steps += [score["step"] for score in scores]
    assert steps == list(range(2 * BUNDLE + 1))
    assert sizes == [BUNDLE, BUNDLE, 1]


def test_progress_is_told_with_what_the_role_does(ends):
    link, agent = ends
    link.moved("working on batch 1", batches=1, rows=64)
    link.moved("working on batch 2", batches=1, rows=3)
    link.tell(Started())
    message = agent.next(Progress)
    assert (message.steps, message.rows, message.doing) == (2, 67, "working on batch 2")
    assert message.memory_bytes > 1 << 20
    assert message.cpu_s > 0
    link.report({"loss": 1.0})
    assert agent.next(Progress).steps == 2, "a report is progress too"


def test_progress_tells_where_the_time_goes(ends, in_background):
    link, agent = ends
    link.spent.begin()
    waiting = in_background(link.receive, None)
    while (message := agent.next(Progress)).busy_with != "client":
        link.moved(f"after {message.doing}")
    assert message.spent["client"] >= 0
    agent.say(Value(value=b"v"))
    assert waiting.result(60) == b"v"
    while (message := agent.next(Progress)).busy_with != "computing":
        continue
    assert message.spent.keys() == {"computing", "client"}


def test_progress_is_told_by_itself(ends, monkeypatch):
    monkeypatch.setattr(link_module, "PROGRESS_INTERVAL_S", 0.01)
    link, agent = ends
    link.tell(Started())
    agent.next()
    link.moved("working on batch 1", batches=1)
    assert agent.next(Progress).steps == 1


def test_what_a_loop_does_without_the_link_is_progress_while_it_changes(ends, monkeypatch):
    monkeypatch.setattr(link_module, "PROGRESS_INTERVAL_S", 0.01)
    link, agent = ends
    collectives = [0]
    link.pulse = lambda: collectives[0]
    for _ in range(2):
        collectives[0] += 1
        assert agent.next(Progress).moved is True
    link.note("asking whether to stop")
    assert agent.next(Progress).moved is False


def test_what_is_no_progress_is_told_as_such(ends, monkeypatch):
    monkeypatch.setattr(link_module, "PROGRESS_INTERVAL_S", 0.01)
    link, agent = ends
    link.moved("working on batch 1", batches=1)
    assert agent.next(Progress).moved is True
    link.note("asking whether to stop")
    for _ in range(3):  # told once; what comes next is another thing
        link.note("asking whether to stop")
    link.note("serving")
    said = [agent.next(Progress) for _ in range(1)]
    while said[-1].doing != "serving":
        said.append(agent.next(Progress))
    assert {message.moved for message in said} == {False}
    assert [message.doing for message in said] in (["serving"], ["asking whether to stop", "serving"])


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_who_waits_for_a_value_says_that_it_awaits_the_client(ends, monkeypatch, timeout_s):
    monkeypatch.setattr(link_module, "PROGRESS_INTERVAL_S", 0.01)
    link, agent = ends
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(link.receive, timeout_s)
        message = agent.next(Progress)
        assert (message.awaits_client, message.moved) == (True, False)
        agent.say(Value(value=b"v"))
        assert receiving.result(60) == b"v"
    message = agent.next(Progress)
    assert (message.awaits_client, message.moved) == (False, True), "a value that comes is progress"


def test_who_looks_for_a_value_again_and_again_awaits_the_client_in_between(ends, monkeypatch):
    monkeypatch.setattr(link_module, "PROGRESS_INTERVAL_S", 0.01)
    link, agent = ends
    with pytest.raises(StalledError, match="No value was sent"):
        link.receive(0)
    link.tell(Started())
    agent.next(Started)
    with pytest.raises(StalledError, match="No value was sent"):
        link.receive(0.02)
    assert agent.next(Progress).awaits_client is True
    monkeypatch.setattr(link, "_awaits_until", 0.0)  # long after
    assert agent.next(Progress).awaits_client is False


def test_a_process_without_descriptors_reports_its_error(ends, no_descriptors):
    link, agent = ends
    with no_descriptors():
        link.moved("working on batch 1", batches=1)
        link.tell(Ended(result=b"r"))
        assert agent.next(Progress).memory_bytes == 0
        assert agent.next() == Ended(result=b"r")


def test_what_can_not_be_pickled_is_an_error_where_it_is_told(ends):
    link, agent = ends
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError), match="lambda"):
        link.ask_to_stop(lambda: "a reason is text")
    link.notice("still there")
    assert agent.next() == Notice(text="still there")


def test_a_process_that_can_not_report_any_more_ends(ends, exits, wait_for, capsys):
    link, _ = ends

    def pulse() -> int:
        raise RuntimeError("an adapter's own error")

    link.pulse = pulse
    link.tell(Started())
    wait_for(lambda: exits == [1], "the writer ends the process")
    assert "RuntimeError: an adapter's own error" in capsys.readouterr().err


def test_a_process_that_hears_nothing_any_more_ends(ends, exits, wait_for, capsys):
    _, agent = ends
    agent.end.sendall(encode(None)[:8] + b"no pickle at all")
    wait_for(lambda: exits == [1], "the reader ends the process")
    assert "UnpicklingError" in capsys.readouterr().err


def test_what_is_left_is_sent_when_it_closes(ends):
    link, agent = ends
    for number in range(100):
        link.report({"number": number})
        link.notice(str(number))
    link.close()
    words = [agent.next(Notice).text for _ in range(100)]
    assert words == list(map(str, range(100)))


def test_a_stop_wakes_who_waits_for_it(ends):
    link, agent = ends
    assert link.stop_reason == ""
    waiting = threading.Thread(target=link.wait_until_stopped)
    waiting.start()
    agent.say(Stop(reason="loss < 0.1"))
    waiting.join(60)
    assert not waiting.is_alive()
    assert link.stop_reason == "loss < 0.1"


def test_a_stop_without_a_reason_is_one(ends):
    link, agent = ends
    agent.say(Stop(reason=""))
    link.wait_until_stopped()
    assert link.stop_reason == "the run stops"


def test_a_role_asks_to_stop(ends):
    link, agent = ends
    link.ask_to_stop("enough")
    assert agent.next() == Stop(reason="enough")


def test_answers_come_in_turn(ends):
    link, agent = ends
    agent.say(begin(attempt=1))
    agent.say(enter(None))
    assert link.expect(BeginRole).attempt == 1
    with pytest.raises(AssertionError, match="CallFunction"):
        link.expect(BeginRole)


def test_a_published_data_set_is_mapped(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.dataset, "mine")
    question = agent.next()
    assert question == DataSetWanted(name="mine", question=question.question)
    agent.say(Answer(question=question.question, number=3, data=letters(4, 5, 6)))
    number, table, rows = opening.result(60)
    assert (number, table.num_rows, values(rows)) == (3, 3, [4, 5, 6])


def test_a_group_is_mapped_and_left(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.open_group, STREAM, 4, 3)
    question = agent.next()
    assert question == GroupWanted(question=question.question, stream=STREAM, group=4, needed_from=3)
    agent.say(Answer(question=question.question, data=letters(7, 8, 9)))
    assert values(opening.result(60)) == [7, 8, 9]
    link.leave(STREAM)
    assert agent.next() == StreamLeft(stream=STREAM)


def test_data_that_is_to_come_is_waited_for(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.open_group, STREAM, 4, 3)
    number = agent.next().question
    for _ in range(2):
        agent.say(Answer(question=number, to_come=True))
    agent.say(Answer(question=number, data=letters(7, 8, 9)))
    assert values(opening.result(60)) == [7, 8, 9]


def test_rows_come_from_elsewhere(ends, in_background):
    link, agent = ends
    partition, row = np.array([3, 1]), np.array([0, 5])
    fetching = in_background(link.rows_from_elsewhere, STREAM, partition, row)
    question = agent.next()
    assert (type(question), question.stream) == (RowsWanted, STREAM)
    np.testing.assert_array_equal([question.partition, question.row], [partition, row])
    agent.say(Answer(question=question.question, columns=[np.array([[1.0], [2.0]]), np.array([1, 2])]))
    x, y = fetching.result(60)
    assert (x.tolist(), y.tolist()) == ([[1.0], [2.0]], [1, 2])


def test_answers_find_who_has_asked(ends, letters, in_background):
    link, agent = ends
    opening = in_background(link.dataset, "mine")
    first = agent.next()
    fetching = in_background(link.rows_from_elsewhere, STREAM, np.arange(1), np.arange(1))
    second = agent.next()
    assert (type(first), type(second)) == (DataSetWanted, RowsWanted)
    agent.say(Answer(question=second.question, columns=[np.array([7])]))
    agent.say(Stop(reason="in between"))
    agent.say(Answer(question=first.question, number=1, data=letters(1, 2, 3)))
    assert fetching.result(60)[0].tolist() == [7]
    assert values(opening.result(60)[2]) == [1, 2, 3]


def test_data_come_with_their_own_descriptors(ends, letters):
    link, agent = ends
    for number in (1, 2):
        agent.say(enter(letters(number, number, number)))
        agent.say(begin())
    for number in (1, 2):
        assert values(link.mapped(link.expect(CallFunction).data)) == [number] * 3
        link.expect(BeginRole)


def test_more_descriptors_than_a_message_may_have(ends):
    link, agent = ends
    pairs = [os.pipe() for _ in range(10)]
    sent = [pairs[number % 10][0] for number in range(2 * MAX_DESCRIPTORS + 20)]
    for descriptors in (sent, sent[:3]):
        agent.say(enter(Mapped(table=None, held=None, descriptors=descriptors)))
    for count in (len(sent), 3):
        came = link.expect(CallFunction).data.descriptors
        assert [os.fstat(each).st_ino for each in came] == [os.fstat(each).st_ino for each in sent[:count]]
        for descriptor in came:
            os.close(descriptor)
    for descriptor in sum(pairs, ()):
        os.close(descriptor)


def test_descriptors_are_closed_where_they_can_not_be_mapped(ends, letters):
    link, agent = ends
    ends_of_pipe = os.pipe()
    agent.say(enter(replace(letters(1, 2, 3), descriptors=[ends_of_pipe[0]])))
    data = link.expect(CallFunction).data
    with pytest.raises(OSError, match="can't be mapped"):
        link.mapped(data)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(data.descriptors[0])
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
    agent.say(Answer(question=question.question, error="It was released."))
    with pytest.raises(DataError, match="It was released"):
        asking.result(60)
    asking = in_background(ask, link)
    agent.say(Answer(question=agent.next().question, error="It did not come.", stalled=True))
    with pytest.raises(StalledError, match="It did not come"):
        asking.result(60)
    link.wait_at_most(0.01)
    with pytest.raises(StalledError, match=f"The agent did not answer with {question.asks_for} within 0.01 s"):
        ask(link)


def test_it_meets_the_others(ends, in_background):
    link, agent = ends
    meeting = in_background(link.meet, "h:1")
    assert agent.next(Meets).address == "h:1"
    agent.say(Met(addresses=["h:1", "h:2"], error="", secret=b"s"))
    assert meeting.result(60).addresses == ["h:1", "h:2"]
    link.wait_at_most(0.1)
    with pytest.raises(StalledError, match=r"did not all come to a collective call within 0.1 s"):
        link.meet("h:1")
    agent.say(Met(addresses=["h:1", "h:2"], error="", secret=b"s"))  # too late: nobody listens there any more
    link.wait_at_most(60.0)
    meeting = in_background(link.meet, "h:3")
    agent.say(Met(addresses=["h:3", "h:2"], error="", secret=b"s"))
    assert meeting.result(60).addresses == ["h:3", "h:2"]


def test_it_tells_that_batches_are_shared_by_the_number_that_it_was_told_of(ends, in_background):
    link, agent = ends
    agent.say(Resize(size=3))
    agent.say(Met(addresses=["h:1"], error="", secret=b""))
    in_background(link.meet, "h:1").result(60)  # what was said before has come
    link.shared_among(link.wanted_size)
    assert agent.next(Shared).size == 3


def test_it_knows_whose_process_is_gone_and_asks_for_a_restart(ends, in_background):
    link, agent = ends
    assert link.lost_attempt(1) == -1
    for lost_attempt in (2, 1):
        agent.say(PeerLost(peer=1, lost_attempt=lost_attempt))
    agent.say(Met(addresses=["h:1"], error="", secret=b""))
    in_background(link.meet, "h:1").result(60)  # what was said before has come
    assert (link.lost_attempt(1), link.lost_attempt(0)) == (2, -1), "an earlier start of it is lost as well"
    link.stay = Mock(side_effect=SystemExit)  # its agent ends it
    with pytest.raises(SystemExit):
        link.start_all_again("there is no mirror")
    assert agent.next(CannotGoOn).why == "there is no mirror"


def test_an_answer_for_which_nobody_waits_any_more(ends, in_background):
    link, agent = ends
    link.wait_at_most(0.01)
    with pytest.raises(StalledError):
        link.dataset("mine")
    late = agent.next().question
    link.wait_at_most(30.0)
    sent = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    fetching = in_background(link.rows_from_elsewhere, STREAM, np.arange(1), np.arange(1))
    question = agent.next().question
    assert question != late
    agent.say(Answer(question=late, data=Mapped(table=None, held=None, descriptors=sent)))
    agent.say(Answer(question=question, columns=[np.array([7])]))
    assert fetching.result(60)[0].tolist() == [7]
    assert len(os.listdir("/proc/self/fd")) == before, "what came with it is closed"
    for descriptor in sent:
        os.close(descriptor)


def test_without_its_agent_the_process_ends(ends, exits, wait_for):
    link, agent = ends
    agent.end.close()
    wait_for(lambda: exits == [1], "the reader ends the process")
    link.tell(Ended(result=b""))
    wait_for(lambda: exits == [1, 1], "the writer ends the process")


def test_values_come_in_order_until_the_run_stops(ends, in_background):
    link, agent = ends
    link.send(b"mine")
    assert agent.next() == Value(value=b"mine")
    with pytest.raises(StalledError, match="No value was sent to this role within 0 s"):
        link.receive(0)
    waiting = in_background(link.receive, None)
    for value in (b"a", b"b"):
        agent.say(Value(value=value))
    assert waiting.result(60) == b"a"
    assert link.receive(10) == b"b"
    agent.say(Stop(reason="enough"))
    for _ in range(2):
        with pytest.raises(ClosedError, match="No value comes any more: enough"):
            link.receive(None)


def test_another_number_of_workers_is_heard_and_one_that_joins_waits_as_long_as_it_takes(ends, in_background):
    link, agent = ends
    assert link.wanted_size == 0
    link.wait_at_most(0.01)
    joining = in_background(lambda: link.meet("h:1", joins=True))
    assert (agent.next(Meets).address, joining.done()) == ("h:1", False)
    agent.say(Resize(size=3))
    agent.say(Met(addresses=["h:1"], error="", secret=b""))
    assert joining.result(60).addresses == ["h:1"]
    assert link.wanted_size == 3
    agent.say(Met(addresses=["h:1"], error="", secret=b""))
    link.wait_at_most(60.0)
    link.meet("h:1", 3)
    assert agent.next(Meets).size == 3
