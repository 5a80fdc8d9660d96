"""A number of workers that follows that of the Dask workers: when it is changed, and when not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dask_train.driver.following import COME_S, LEAVE_S, follow, is_steady
from dask_train.driver.settings import RunSettings
from dask_train.run.bounds import WorkerBounds
from dask_train.run.state import Phase, ResizePhase, Role, RolePhase, RunPlan, RunState, SizeChange

POLL_S = 5.0


class Driver:
    """A driver whose cluster has room for so many workers, one answer after the other; then its run is over.

    Attributes
    ----------
    asked
        Of the scheduler: how many places were known, and how long it might take.
    changes
        Numbers of workers that were asked for.
    refuses
        Why a change can't be; None where it can.
    """

    def __init__(self, *room: int, refuses: str = "", in_place: bool = True, one_host: bool = True) -> None:
        self.in_place, self.one_host = in_place, one_host
        self.room, self.refuses, self.over = list(room), refuses, False
        self.asked: list[tuple[int, float]] = []
        self.changes: list[int] = []
        self.follows: WorkerBounds | None = WorkerBounds(2, 4)
        self.job = SimpleNamespace(id="run-1", run=RunSettings(), needs={"worker": {"slot": 1.0}})
        self.history = SimpleNamespace(outcome="it has ended", notices=[], notice=self._notice)
        self.dispatch = SimpleNamespace(host_of=lambda address: f"host of {address}" if address else "")
        self.peer = SimpleNamespace(poll_s=POLL_S, ask=self._ask)
        self.resizing, self.num_resizes = asyncio.Lock(), 0
        self.time = 0.0
        self._runs(2)

    def _runs(self, count: int, resize: SizeChange | None = None, phase: RolePhase = RolePhase.RUNNING) -> None:
        plan = RunPlan(
            counts={"worker": count},
            training=frozenset({"worker"}),
            in_place=self.in_place,
            one_host=self.one_host,
        )
        roles = {key: Role(phase=phase, address="a") for key in plan.training_keys()}
        self.state = RunState(plan=plan, phase=Phase.RUNNING, met=self.in_place, roles=roles, resize=resize)

    def _notice(self, text: str) -> None:
        self.history.notices.append(text)

    async def _ask(self, handler, *, run, places, known, timeout_s):
        assert (handler, run) == ("train_run_room", "run-1")
        host = "host of a" if self.one_host else ""
        assert places == {"on": None, "host": host, "needs": {"slot": 1.0}, "on_one_host": self.one_host}
        self.asked.append((known, timeout_s))
        self.time += timeout_s
        await asyncio.sleep(0)
        if not self.room:
            return {"status": "gone"}
        return {"status": "OK", "count": self.room.pop(0)}

    def now(self):
        return self.time

    def happened(self, event):
        self.changes.append(event.size)
        resize = SizeChange(number=event.number, size=event.size, phase=ResizePhase.SETTLED, why=self.refuses)
        self._runs(self.state.plan.counts["worker"] if self.refuses else event.size, resize)

    async def until(self, met):
        while not met():
            await asyncio.sleep(0)


def followed(driver):
    asyncio.run(asyncio.wait_for(follow(driver), 10))
    return driver.changes


def test_it_grows_and_shrinks_within_the_bounds_once_the_number_has_settled():
    driver = Driver(2, 3, 5, 5, 5, 1, 1)
    assert followed(driver) == [4, 2]
    known = [known for known, _ in driver.asked]
    assert known == [-1, 2, 3, 5, 5, 5, 1, 1]
    assert [timeout_s for _, timeout_s in driver.asked[1:6]] == [POLL_S, COME_S, COME_S, POLL_S, POLL_S]
    assert driver.asked[6] == (1, LEAVE_S)


@pytest.mark.parametrize("in_place", [True, False])
def test_dask_workers_of_all_hosts_count_unless_all_workers_have_to_be_on_one(in_place):
    assert followed(Driver(2, 4, 4, 4, 2, 2, in_place=in_place, one_host=False)) == [4, 2]


def test_a_number_that_goes_back_in_time_changes_nothing():
    assert followed(Driver(2, 3, 2, 2, 2)) == []


def test_what_can_not_be_is_told_once_and_tried_again_later_or_for_another_number():
    driver = Driver(3, 3, 3, *[3] * 8, 3, 4, 4, 4, refuses="there is no room")
    assert followed(driver) == [3, 3, 4]
    assert len(driver.history.notices) == 2
    assert "continues with 2 workers, and not with 3. There is no room." in driver.history.notices[0]


def test_what_can_not_be_since_a_dask_worker_has_left_is_not_told():
    driver = Driver(3, 3, 2, 2, refuses="worker 2 is lost")
    assert followed(driver) == [3]
    assert driver.history.notices == []


def test_it_ends_where_the_user_has_asked_for_a_number():
    driver = Driver(3, 3, 3)
    driver.follows = None
    assert followed(driver) == []
    assert driver.asked == []


def test_it_ends_with_the_run():
    driver = Driver(3, 3, 3)
    driver.over = True
    assert followed(driver) == []


@pytest.mark.parametrize("phase", [RolePhase.PLACING, RolePhase.STARTING, RolePhase.RETURNED])
def test_all_workers_have_to_train(phase):
    driver = Driver()
    assert is_steady(driver.state)
    driver._runs(2, phase=phase)
    assert not is_steady(driver.state)
