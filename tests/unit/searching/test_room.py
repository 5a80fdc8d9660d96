"""How many workers of trials a cluster holds, and how many share a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.errors import PlacementError
from dask_train.searching import room
from dask_train.searching.room import capacity_of, check_room, entered, room_of, runs_on_host

WORKERS = {
    "tcp://a:1": {"host": "a", "nthreads": 4, "resources": {"GPU": 1}},
    "tcp://a:2": {"host": "a", "nthreads": 2, "resources": {}},
    "tcp://b:1": {"host": "b", "nthreads": 3, "resources": {"GPU": 2, "RAM": 5e9}},
    "tcp://c:1": {"host": "c", "nthreads": 1},
}


def peer_of(workers: dict[str, Any], *, asynchronous: bool = False) -> Any:
    return SimpleNamespace(run=lambda ask: ask(), workers=lambda: dict(workers), asynchronous=asynchronous)


PEER = peer_of(WORKERS)


def test_threads_hold_workers_where_nothing_else_is_needed():
    assert room_of(PEER, None, {}) == [("a", 4), ("a", 2), ("b", 3), ("c", 1)]
    assert capacity_of(PEER, None, {}) == 10


@pytest.mark.parametrize(
    ("needs", "counts"),
    [
        ({"GPU": 1}, [1, 0, 2, 0]),
        ({"GPU": 0.5}, [2, 0, 3, 0]),
        ({"GPU": 1, "RAM": 4e9}, [0, 0, 1, 0]),
        ({"GPU": 0}, [4, 2, 3, 1]),
    ],
)
def test_resources_hold_no_more_than_they_are_enough_for(needs, counts):
    assert [count for _, count in room_of(PEER, None, needs)] == counts


def test_only_those_that_may_be_used_count_and_one_that_has_left_holds_none():
    assert room_of(PEER, ["tcp://b:1", "tcp://gone:1"], {}) == [("b", 3)]
    assert capacity_of(PEER, [], {}) == 0


def test_a_trial_that_fits_nowhere_is_refused():
    check_room(2, 4, 2)
    check_room(0, 0, 2)  # there is no Dask worker yet, and some may come
    with pytest.raises(
        PlacementError, match=r"A trial of 3 workers needs room for 3, .* hold 2, with 8 threads in all"
    ):
        check_room(2, 8, 3)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), max_size=6),
    st.integers(1, 4),
    st.integers(1, 30),
)
def test_slots_of_a_host_are_no_fewer_than_what_all_of_them_need(found, workers, most):
    on_host = runs_on_host(found, workers, most)
    slots = min(most, sum(count for _, count in found) // workers)
    hosts = len({host for host, _ in found})
    assert on_host >= 1
    assert on_host * max(1, hosts) >= slots
    assert (on_host - 1) * max(1, hosts) < max(1, slots)


def test_who_can_not_wait_is_refused_before_anything_is_asked(monkeypatch):
    monkeypatch.setattr(room, "Peer", lambda _: peer_of({}, asynchronous=True))
    monkeypatch.setattr(room, "wait_for_first", lambda _: pytest.fail("it can't wait"))
    with pytest.raises(ValueError, match="search waits for trials, and this client is asynchronous"):
        entered("client", None, {}, 1)


def test_the_first_dask_worker_is_waited_for_before_room_is_counted(monkeypatch):
    workers: dict[str, Any] = {}
    monkeypatch.setattr(room, "Peer", lambda _: peer_of(workers))
    monkeypatch.setattr(room, "wait_for_first", lambda _: workers.update(WORKERS))
    assert capacity_of(entered("client", None, {}, 10), None, {}) == 10
    with pytest.raises(PlacementError, match="with 1 threads in all"):
        entered("client", ["tcp://c:1"], {}, 2)
    with pytest.raises(PlacementError, match="hold 3"):
        entered("client", None, {"GPU": 1}, 4)
