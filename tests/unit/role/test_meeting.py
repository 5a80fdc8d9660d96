"""How training roles meet when they first do something together, and what is left where they do not."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_train.collectives.reductions import Reduction
from dask_train.errors import LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.role import meeting as meeting_module
from dask_train.role.meeting import Meeting
from dask_train.role.time_spent import TimeSpent
from dask_train.run.messages import Met

LONG_S = 60.0


class Run:
    """Tells each role where the others are, once all have asked; their ``error`` where they never will."""

    def __init__(self, size: int, error: str = "") -> None:
        self._all, self._error = threading.Barrier(size), error
        self.addresses = [""] * size
        self.num_asked = 0
        self.attempts, self.lost = [0, 3], -1

    def link(self, rank: int) -> Any:
        def meet(address: str, size: int = 0, or_size: int = 0, *, joins: bool = False) -> Met:
            self.num_asked += 1
            self.addresses[rank], attempts = address, self.attempts
            self._all.wait(LONG_S)
            return Met(addresses=list(self.addresses), error=self._error, secret=b"of the run", attempts=attempts)

        return SimpleNamespace(meet=meet, spent=TimeSpent(), lost_attempt=lambda _peer: -1)


def info(rank: int = 0, size: int = 1, role: str = "worker", host: str = "127.0.0.1") -> RoleInfo:
    return RoleInfo(role=role, rank=rank, counts={"worker": size, "ps": 1}, host=host, num_threads=1)


def summed(meeting: Meeting, value: float) -> float:
    return float(meeting.group().all_reduce([np.array([value])], Reduction("sum"))[0][0])


def test_one_alone_asks_nobody(no_leaks):
    run = Run(1)
    with no_leaks():
        meeting = Meeting(run.link(0), info(), LONG_S, LONG_S)
        assert not meeting.has_met
        assert summed(meeting, 3.0) == 3.0
        assert meeting.has_met
        assert meeting.group() is meeting.group()
        meeting.close()
        assert not meeting.has_met
    assert run.num_asked == 0


@pytest.mark.parametrize("hosts", [1, 2])
def test_all_meet_once_and_leave_nothing(no_leaks, in_threads, hosts):
    run = Run(2)

    def take_part(rank: int) -> list[float]:
        me = info(rank, 2, host=f"127.0.0.{1 + rank % hosts}")
        meeting = Meeting(run.link(rank), me, LONG_S, LONG_S)
        try:
            return [summed(meeting, value + rank) for value in (1.0, 10.0)]
        finally:
            meeting.close()

    with no_leaks():
        assert in_threads(lambda: take_part(0), lambda: take_part(1)) == [[3.0, 21.0]] * 2
    assert run.num_asked == 2


def test_threads_of_a_role_that_come_first_at_the_same_time_meet_the_others_once(no_leaks, in_threads):
    run, all_threads = Run(2), threading.Barrier(4)

    def come(meeting: Meeting) -> int:
        all_threads.wait(LONG_S)
        return id(meeting.group())

    with no_leaks():
        meetings = [Meeting(run.link(rank), info(rank, 2), LONG_S, LONG_S) for rank in range(2)]
        found = in_threads(*(partial(come, meeting) for meeting in meetings * 2))
        assert found[:2] == found[2:] == [id(meeting.group()) for meeting in meetings]
        for meeting in meetings:
            meeting.close()
    assert run.num_asked == 2


def test_who_does_not_train_is_told_so():
    run = Run(1)
    meeting = Meeting(run.link(0), info(role="ps"), LONG_S, LONG_S)
    with pytest.raises(ValueError, match=r"ps 0 takes part in no collective call: .* or read checkpoints\."):
        meeting.group()
    assert (run.num_asked, meeting.has_met) == (0, False)
    meeting.close()


def test_others_that_never_come_are_told_of_and_may_be_waited_for_again(no_leaks):
    with no_leaks():
        run = Run(1, "worker 1 has returned")
        run.addresses = ["", "127.0.0.1:1"]
        meeting = Meeting(run.link(0), info(0, 2), LONG_S, LONG_S)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"worker 0 waits for the other training roles, and worker 1 has ret"):
                meeting.group()
        assert not meeting.has_met
        meeting.close()
    assert run.num_asked == 2


@pytest.mark.parametrize("other", ["127.0.0.1:1", "127.0.0.2:1"])
def test_where_one_does_not_come_in_time_nothing_stays_open(no_leaks, other):
    """Neither the port nor the memory that the ranks of this host would have shared."""
    with no_leaks(), ExitStack() as stack:
        run = Run(1)
        run.addresses = ["", other]
        meeting = Meeting(run.link(0), info(0, 2), 0.02, 0.02)
        stack.callback(meeting.close)
        with pytest.raises(LaunchError):
            meeting.group()
        assert not meeting.has_met


def test_all_meet_again_in_new_memory_as_often_as_they_like(no_leaks, in_threads):
    run = Run(2)

    def take_part(rank: int) -> None:
        meeting = Meeting(run.link(rank), info(rank, 2), LONG_S, LONG_S)
        for _ in range(2):
            formation = meeting.form()
            assert (formation.rank, formation.hosts.groups, list(formation.attempts)) == (rank, [[0, 1]], [0, 3])
            formation.memory.arrive()
            while not formation.memory.wait_for(1 - rank, LONG_S):
                pass
            formation.memory.close()

    with no_leaks():
        in_threads(*(partial(take_part, rank) for rank in range(2)))


def test_where_one_is_lost_meanwhile_they_meet_once_more_with_its_successor(no_leaks, in_threads):
    run = Run(2)

    def survive() -> list[int]:
        link = run.link(0)
        link.lost_attempt = lambda peer: run.lost if peer == 1 else -1
        formation = Meeting(link, info(0, 2), LONG_S, LONG_S).form()
        formation.memory.close()
        return list(formation.attempts)

    def be_lost_and_replaced() -> None:
        run.link(1).meet("127.0.0.1:1")  # and its process is killed
        run.lost, run.attempts = 3, [0, 4]
        Meeting(run.link(1), info(1, 2), LONG_S, LONG_S).form().memory.close()

    with no_leaks():
        assert in_threads(survive, be_lost_and_replaced)[0] == [0, 4]


def test_nobody_meets_again_where_one_has_returned(no_leaks):
    with no_leaks(), pytest.raises(ValueError, match="worker 0 waits for the other training roles, and 1 has returned"):
        Meeting(Run(1, "1 has returned").link(0), info(0, 2), LONG_S, LONG_S).form()


@pytest.mark.parametrize("joins", [False, True])
def test_one_that_joins_knows_when_the_others_wait_for_it(monkeypatch, joins):
    def formed(*_: Any) -> Any:
        raise OSError("no memory")

    monkeypatch.setattr(meeting_module, "formed", formed)
    meeting = Meeting(Run(1).link(0), info(), LONG_S, LONG_S, joins=joins)
    assert not meeting.has_joined
    with pytest.raises(OSError, match="no memory"):
        meeting.form()
    assert meeting.has_joined is joins
