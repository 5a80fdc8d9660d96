"""The queue between Dask's event loop and a role's thread."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.errors import ClosedError, RoleLostError, StalledError
from dask_train.tensorflow_network.feed_queue import FeedQueue

LONG_S = 60.0  # a wait that ends earlier, or the test has found a bug


@given(st.lists(st.integers() | st.none()), st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_first_in_first_out(items, size):
    feed = FeedQueue(size, LONG_S)
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(lambda: [feed.put(item) for item in items])
        assert [feed.get() for _ in items] == items
        putting.result()
    assert feed.empty()


def test_it_is_bounded():
    feed = FeedQueue(2, LONG_S)
    assert (feed.maxsize, feed.qsize(), feed.empty(), feed.full()) == (2, 0, True, False)
    feed.put("a")
    feed.put_nowait("b")
    assert (len(feed), feed.qsize(), feed.empty(), feed.full(), feed.has_room()) == (2, 2, False, True, False)
    with pytest.raises(queue.Full):
        feed.put_nowait("c")
    with pytest.raises(queue.Full):
        feed.put("c", timeout=0.01)
    assert [feed.get_nowait(), feed.get(block=False)] == ["a", "b"]


def test_an_empty_one_behaves_like_the_standard_queue():
    feed = FeedQueue(1, LONG_S)
    for get in (feed.get_nowait, lambda: feed.get(timeout=0.01), lambda: feed.get(timeout=-1)):
        with pytest.raises(queue.Empty):
            get()


def test_no_wait_is_endless():
    feed = FeedQueue(1, default_timeout_s=0.01)
    with pytest.raises(StalledError, match=r"No batch came within 0\.01 s\..*raise train\.progress\.timeout"):
        feed.get()
    feed.put("a")
    with pytest.raises(StalledError, match=r"Nobody took a batch within 0\.01 s"):
        feed.put("b")


@pytest.mark.parametrize(
    ("failure", "error", "text"),
    [
        (None, ClosedError, "closed with its network"),
        (RoleLostError("ps 0 is gone."), RoleLostError, "ps 0 is gone"),
    ],
)
def test_close_wakes_all_who_wait_and_refuses_those_who_come(failure, error, text):
    empty, full = FeedQueue(1, LONG_S), FeedQueue(1, LONG_S)
    full.put("a")
    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(empty.get), pool.submit(empty.get, timeout=LONG_S)]
        waits += [pool.submit(full.put, "b"), pool.submit(full.put, "c", timeout=LONG_S)]
        empty.close(failure)
        full.close(failure)
        for waiting in waits:
            with pytest.raises(error, match=text):
                waiting.result(LONG_S)
    assert full.closed
    assert full.empty(), "what was inside is dropped"
    for late in (full.get, full.get_nowait, lambda: full.put("d")):
        with pytest.raises(error, match=text):
            late()


def test_each_who_waits_gets_an_error_of_its_own():
    feed = FeedQueue(1, LONG_S)
    feed.close(RoleLostError("gone"))
    errors = []
    for _ in range(2):
        with pytest.raises(RoleLostError) as caught:
            feed.get()
        errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_the_first_reason_to_close_stays():
    feed = FeedQueue(1, LONG_S)
    feed.close(RoleLostError("gone"))
    feed.close()
    with pytest.raises(RoleLostError, match="gone"):
        feed.get()


def test_iterating_ends_with_the_network_but_not_with_a_loss():
    feed = FeedQueue(3, LONG_S)
    for item in "abc":
        feed.put(item)
    seen = []
    for item in feed:
        seen.append(item)
        if item == "c":
            feed.close()
    assert seen == ["a", "b", "c"]
    lost = FeedQueue(1, LONG_S)
    lost.close(RoleLostError("gone"))
    with pytest.raises(RoleLostError, match="gone"):
        list(lost)


def test_room_is_told_in_the_thread_that_made_it():
    told = []
    feed = FeedQueue(1, LONG_S, on_room=lambda: told.append(threading.current_thread()))
    feed.put("a")
    assert told == []
    feed.get()
    assert told == [threading.current_thread()]
    feed.close()
    assert len(told) == 2, "whoever waits for room must see that it is closed"
