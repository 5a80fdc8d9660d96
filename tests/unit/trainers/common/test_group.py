"""Who of the workers of a run is connected with whom."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_train.collectives.formation import Formation
from dask_train.collectives.hosts import Hosts
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.errors import LaunchError
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common import group as group_module
from dask_train.trainers.common.group import process_group

TWO_HOSTS = ["a:1", "a:2", "b:1", "b:2"]


class Ring:
    """Keeps what it was made with."""

    made: list[Ring]
    fails = False

    def __init__(self, addresses: list[str], place: int, credentials: str, collective_timeout_s: float) -> None:
        if Ring.fails:
            raise LaunchError("The others did not come.")
        self.of, self.is_closed = (addresses, place, credentials, collective_timeout_s), False
        Ring.made.append(self)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def session(monkeypatch):
    """The session of a rank, for whom the memory of its host is there already."""
    monkeypatch.setattr(group_module, "Ring", Ring)
    monkeypatch.setattr(Ring, "made", [], raising=False)
    monkeypatch.setattr(Ring, "fails", False)
    memories = []

    def of(rank: int, addresses: list[str], file: int | None = None) -> Any:
        hosts = Hosts.of(addresses)
        ranks = hosts.group_of(rank)
        memory = SharedMemory(SharedMemory.create() if file is None else file, ranks.index(rank), len(ranks))
        memories.append(memory)
        link = SimpleNamespace(spent=TimeSpent())
        return SimpleNamespace(rank=rank, meeting=(hosts, memory), _link=link, _go_on_among=lambda _: None)

    yield of
    for memory in memories:
        memory.close()


TASK: Any = SimpleNamespace(collective_timeout_s=5.0, credentials=lambda _: "credentials")


@pytest.mark.parametrize(
    ("rank", "addresses", "ring"),
    [
        (0, ["a:1"], None),
        (0, ["a:1", "b:1"], (["a:1", "b:1"], 0)),
        (1, ["a:1", "b:1"], (["a:1", "b:1"], 1)),
    ],
)
def test_hosts_are_connected_with_each_other(session, rank, addresses, ring):
    with process_group(TASK, session(rank, addresses)) as group:
        assert (group.rank, group.size) == (rank, len(addresses))
        assert [made.of for made in Ring.made] == ([] if ring is None else [(*ring, "credentials", 5.0)])
    assert all(made.is_closed for made in Ring.made)


def test_the_first_of_each_host_alone_deals_with_other_hosts(session, in_threads):
    addresses, file = ["a:1", "a:2", "b:1"], SharedMemory.create()

    def take_part(rank: int) -> None:
        with process_group(TASK, session(rank, addresses, os.dup(file))) as group:
            assert group.leader == 0

    in_threads(lambda: take_part(0), lambda: take_part(1))
    os.close(file)
    assert [made.of[:2] for made in Ring.made] == [(["a:1", "b:1"], 0)]


def test_the_time_that_it_takes_is_accounted_for_while_it_lasts(session):
    it = session(0, ["a:1"])
    with process_group(TASK, it) as group:
        assert it._link.spent._groups == [group]
    assert it._link.spent._groups == []


def test_what_earlier_models_have_taken_of_the_memory_is_free_again(session):
    """In a search the same workers train one model after another."""
    it = session(0, ["a:1"])
    tops = []
    for _ in range(2):
        with process_group(TASK, it) as group:
            tops.append(group.top)
            channel = group.channel([(1000,)], "f4")
            assert group.sum(channel, [np.ones(1000, "f4")])[0].sum() == 1000
    assert tops[0] == tops[1]


def test_others_that_do_not_come_leave_nothing_accounted_for(session, monkeypatch):
    monkeypatch.setattr(Ring, "fails", True)
    it = session(0, TWO_HOSTS)
    with pytest.raises(LaunchError), process_group(TASK, it):
        pytest.fail("there is no group")
    assert it._link.spent._groups == []


def test_the_group_of_workers_that_meet_by_themselves_replaces_lost_ones(session):
    it = session(0, ["a:1"])
    hosts, _ = it.meeting
    formation = Formation(hosts=hosts, rank=0, memory=SharedMemory(SharedMemory.create(), 0, 1), attempts=[0])
    it.meeting, it._alone = None, False
    it._meeting = SimpleNamespace(form=lambda: formation, has_joined=False)
    with process_group(TASK, it) as group:
        assert isinstance(group, ReplaceableGroup)
        assert it._link.spent._groups == [group]
    with pytest.raises(OSError, match="Bad file descriptor"):
        formation.memory.read(0, 1)


@pytest.mark.parametrize(
    ("attempt", "has_joined", "text"),
    [
        (0, False, "^The others did not come"),
        (0, True, "worker 1, which joins the others, can't meet: The others did not come"),
        (1, False, "worker 1, which takes a lost one's place, can't meet: The others did not come"),
    ],
)
def test_one_that_others_wait_for_and_that_can_not_meet_lets_all_start_again(session, attempt, has_joined, text):
    def form() -> Formation:
        raise LaunchError("The others did not come.")

    def start_all_again(why: str) -> None:
        raise RuntimeError(why)

    it = session(1, ["a:1", "a:2"])
    it.meeting, it.attempt = None, attempt
    it._meeting = SimpleNamespace(form=form, start_all_again=start_all_again, has_joined=has_joined)
    with pytest.raises(RuntimeError if attempt or has_joined else LaunchError, match=text), process_group(TASK, it):
        pytest.fail("there is no group")


@pytest.mark.parametrize(
    ("alone", "has_joined", "can_not"),
    [
        ((True, True), (False, False), True),
        ((True, False), (False, True), True),
        ((False, True), (False, False), False),
    ],
    ids=["all in place of others", "one joins", "one is lost when all first meet"],
)
def test_workers_none_of_which_was_there_at_the_start_do_not_begin_anew(
    session, in_threads, alone, has_joined, can_not
):
    addresses, file = ["a:1", "a:2"], SharedMemory.create()

    def start_all_again(why: str) -> None:
        raise RuntimeError(why)

    def begins(rank: int) -> str:
        it = session(rank, addresses)
        memory = SharedMemory(os.dup(file), rank, 2)
        formation = Formation(hosts=it.meeting[0], rank=rank, memory=memory, attempts=[1, 1])
        it.meeting, it._alone = None, alone[rank]
        it._meeting = SimpleNamespace(
            form=lambda: formation,
            has_joined=has_joined[rank],
            start_all_again=start_all_again,
            lost_attempt=lambda _: -1,
        )
        try:
            with process_group(TASK, it):
                return "begins"
        except RuntimeError as error:
            return str(error)

    found = in_threads(lambda: begins(0), lambda: begins(1))
    os.close(file)
    why = "all workers that had trained were lost before any other had their state" if can_not else "begins"
    assert found == [why, why]
