"""Boards on a real scheduler: one order for all, whoever appends and whoever reads."""

from __future__ import annotations

import threading

import pytest
from distributed import Event, get_worker

import dask_train as dt


def append_many(name, tag, count):
    scores = dt.board(name)
    for number in range(count):
        scores.append((tag, number))
    scores.wait_until(lambda s: s.count >= 3 * count, 30)
    return list(scores)


def test_all_see_all_values_in_one_order(client):
    """More than a Dask topic keeps, from two tasks and the client at once."""
    count = 500
    scores = dt.board("order", maxlen=5000, client=client)
    futures = client.map(append_many, ["order"] * 2, ["a", "b"], [count] * 2, pure=False)
    for number in range(count):
        scores.append(("client", number))
    assert scores.wait_until(lambda s: s.count == 3 * count, 30) is scores
    seen = list(scores)
    for tag in ("a", "b", "client"):
        assert [number for who, number in seen if who == tag] == list(range(count))
    # a task's board keeps its default of 1,000
    assert client.gather(futures) == [seen[-1000:]] * 2
    late = dt.board("order", maxlen=10, client=client)
    assert (list(late), late.count, len(late)) == (seen[-10:], 3 * count, 10)
    scores.delete()


def test_two_readers_and_what_each_keeps(client):
    short, long = (dt.board("readers", maxlen=maxlen, client=client) for maxlen in (2, 4))
    for number in range(6):
        short.append(number)
        assert short[-1] == number, "what one appends is there at once"
    long.wait_until(lambda s: s.count == 6, 30)
    assert (list(short), list(long), long[0], long[1:3]) == ([4, 5], [2, 3, 4, 5], 2, [3, 4])
    assert (bool(long), bool(dt.board("another", client=client))) == (True, False)
    with pytest.raises(IndexError):
        long[4]
    short.delete()


def append_when_told(name, value):
    assert Event("append now").wait(60)
    dt.board(name).append(value)


def test_a_wait_ends_when_another_appends(client):
    scores = dt.board("waiting", client=client)
    waits = [threading.Thread(target=scores.wait_until, args=(lambda s: s[-1] < 0.1, 30)) for _ in range(2)]
    appending = client.submit(append_when_told, "waiting", 0.05)
    for thread in waits:
        thread.start()
    scores.append(0.5)
    Event("append now", client=client).set()
    for thread in waits:
        thread.join(60)
        assert not thread.is_alive()
    assert list(scores) == [0.5, 0.05]
    appending.result(timeout=60)
    scores.delete()


def test_a_wait_ends_at_its_deadline(client):
    scores = dt.board("late", client=client)
    scores.append(1)
    with pytest.raises(
        dt.StalledError, match=r"awaited of board 'late' \(1 values so far\) did not happen within 0\.1 s"
    ):
        scores.wait_until(lambda s: len(s) > 1, 0.1)
    with pytest.raises(ZeroDivisionError):
        scores.wait_until(lambda s: 1 / 0, 30)
    scores.delete()


def test_a_deleted_board_starts_anew(client, state, wait_for):
    scores, reader = dt.board("deleted", client=client), dt.board("deleted", client=client)
    scores.append("old")
    reader.wait_until(bool, 30)
    scores.delete()
    for over in (lambda: scores.append("more"), lambda: scores.wait_until(lambda s: len(s) > 1, 30)):
        with pytest.raises(dt.ClosedError, match=r"Board 'deleted' was deleted\. Open it again"):
            over()
    wait_for(lambda: not reader, "the reader sees that it is empty")
    again = dt.board("deleted", client=client)
    again.append("new")
    assert (list(again), list(reader.wait_until(bool, 30)), again.count) == (["new"], ["new"], 1)
    again.delete()


class Unreadable:
    """Says no where it is unpickled."""

    def __reduce__(self):
        return int, ("no number",)


def test_a_value_that_can_not_be_read_is_told_to_those_who_read(client):
    scores, reader = dt.board("unreadable", client=client), dt.board("unreadable", client=client)
    scores.append(Unreadable())
    for who in (scores, reader):
        with pytest.raises(
            dt.DataError, match=r"A value on board 'unreadable' can't be unpickled here: ValueError: inv"
        ):
            who.wait_until(bool, 30)
    scores.append("still appends")
    scores.delete()


def in_a_thread_of_its_own(name):
    raised = []

    def run():
        try:
            dt.board(name)
        except ValueError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised, get_worker().address


def test_a_thread_of_a_task_is_told_what_to_do(client):
    client.restart()  # a Dask worker whose tasks have had a client keeps it for all threads
    raised, _ = client.submit(in_a_thread_of_its_own, "thread").result(timeout=60)
    assert "in a thread that a task started, make what you need in the task" in raised[0]


def score_in_a_network(name):
    scores = dt.board(name)
    scores.append(get_worker().tensorflow_member.index)
    scores.wait_until(lambda s: s[-1] == "go on", 30)
    return "went on"


def test_the_end_of_its_network_ends_a_wait(client, wait_for):
    scores = dt.board("network", client=client)
    net = dt.start_tensorflow(client, worker=2, leave_servers=True)
    roles = net.submit("worker", score_in_a_network, "network")
    scores.wait_until(lambda s: len(s) == 2, 30)
    raised = []

    def watch():
        try:
            scores.wait_until(lambda s: len(s) == 3, 30)
        except dt.ClosedError as error:
            raised.append(str(error))

    watching = threading.Thread(target=watch)
    watching.start()
    wait_for(lambda: scores._news is not None, "the wait has begun")
    net.close()
    watching.join(60)
    assert not watching.is_alive()
    assert raised == [f"Network {net.id} was closed while board 'network' was awaited."]
    for role in roles:
        with pytest.raises(dt.ClosedError, match="was closed"):
            role.result(timeout=60)
    # the board lives on, and a wait that begins without a network is for anyone's value
    scores.append("more")
    assert scores.wait_until(lambda s: s[-1] == "more", 30)
    scores.delete()
