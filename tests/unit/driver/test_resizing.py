"""Another number of workers: what is refused at the call, and what who has asked is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.driver.handle import Run
from dask_train.driver.resizing import check_resize, resize
from dask_train.driver.settings import RunSettings
from dask_train.errors import ClosedError, PlacementError
from dask_train.run.events import ResizeCancelled
from dask_train.run.state import Phase, ResizePhase, Role, RolePhase, RunPlan, RunState, SizeChange


def refuses(workers):
    if workers > 8:
        raise ValueError(f"{workers} workers share 8 rows")


WAITS = "it waits for room"


class Driver:
    """A driver whose run answers each request with these reasons; None: it is over then, WAITS: it never does."""

    def __init__(self, *reasons, in_place=True, ps=0, resizes=refuses, streaming=False):
        run = RunSettings(resizes=resizes, streaming=streaming)
        counts = {"ps": ps, "worker": 2} if ps else {"worker": 2}
        plan = RunPlan(counts=counts, training=frozenset({"worker"}), in_place=in_place)
        self.job = SimpleNamespace(id="run-1", run=run, plan=plan)
        self.state = RunState(plan=plan, phase=Phase.LAUNCHING)
        self.history, self.over, self.asked, self.reasons = SimpleNamespace(outcome="it has ended"), False, [], reasons
        self.resizing, self.num_resizes, self.cancelled = asyncio.Lock(), 0, []

    def now(self):
        return 3.0

    def happened(self, event):
        if isinstance(event, ResizeCancelled):
            self.cancelled.append(event.number)
            return
        assert (self.state.phase, self.state.met) == (Phase.RUNNING, self.job.plan.in_place), "it trains by then"
        self.asked.append((event.number, event.size, event.timeout_s))
        why, *self.reasons = self.reasons
        self.over = why is None
        phase = ResizePhase.STARTING if self.over or why == WAITS else ResizePhase.SETTLED
        resize = SizeChange(number=event.number, size=event.size, phase=phase, why=why or "")
        self.state = replace(self.state, resize=resize)

    async def until(self, met):
        while not met():
            await asyncio.sleep(0)
            self.state = replace(self.state, phase=Phase.RUNNING, met=self.job.plan.in_place)


@pytest.mark.parametrize(
    ("workers", "error", "why"),
    [(1, ValueError, "continues with at least 2"), (9, ValueError, "9 workers share"), (True, TypeError, "is True")],
)
def test_numbers_that_can_not_be_are_refused_at_the_call(workers, error, why):
    check_resize(Driver(), 3, 0.0)
    with pytest.raises(error, match=why):
        check_resize(Driver(), workers, 0.0)


@pytest.mark.parametrize("timeout_s", [None, "1 minute", -1, float("nan"), float("inf"), True])
def test_a_time_that_can_not_be_waited_is_refused_at_the_call(timeout_s):
    run, driver = object.__new__(Run), Driver()
    for seconds in (60, np.float32(0.5)):
        check_resize(driver, 3, seconds)
    run._driver = driver
    with pytest.raises(ValueError, match=r"timeout_s is .*; pass a finite number of seconds, or 0"):
        run.resize(3, timeout_s=timeout_s)
    assert driver.asked == [], "the run does not know of it"


@pytest.mark.parametrize(
    ("workers", "error", "why"),
    [(0, ValueError, "a run has at least one"), (9, ValueError, "9 workers share"), (True, TypeError, "at least 1")],
)
def test_with_servers_a_run_may_have_one_worker(workers, error, why):
    driver = Driver("", in_place=False, ps=1)
    check_resize(driver, 1, 0.0)
    with pytest.raises(error, match=why):
        check_resize(driver, workers, 0.0)
    asyncio.run(resize(driver, 1, 0.0))
    assert driver.asked == [(0, 1, 0.0)]


@pytest.mark.parametrize(
    "settings",
    [{"in_place": False}, {"resizes": None}, {"streaming": True}, {"in_place": False, "ps": 1, "resizes": None}],
)
def test_other_runs_keep_their_number(settings):
    with pytest.raises(ValueError, match="Run run-1 keeps its number of workers"):
        check_resize(Driver(**settings), 3, 0.0)


def test_it_is_waited_for_until_the_run_has_that_number_and_requests_are_numbered():
    driver = Driver("", "there is no room", "")

    async def ask():
        await resize(driver, 3, 0.0)
        with pytest.raises(PlacementError, match=r"continues with 2 workers, and not with 4\. There is no room\."):
            await resize(driver, 4, 5.0)
        await asyncio.gather(resize(driver, 2, 0.0))

    asyncio.run(ask())
    assert driver.asked == [(0, 3, 0.0), (1, 4, 5.0), (2, 2, 0.0)]


def test_a_call_that_is_interrupted_cancels_the_change_and_the_next_one_waits_for_its_end():
    driver = Driver(WAITS, "")

    async def ask():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(resize(driver, 8, 600.0), 0.01)
        assert driver.cancelled == [0]
        next_one = asyncio.ensure_future(resize(driver, 4, 0.0))
        await asyncio.sleep(0.01)
        assert len(driver.asked) == 1, "the run would drop it"
        change = SizeChange(number=0, size=8, phase=ResizePhase.SETTLED, why="it was cancelled")
        driver.state = replace(driver.state, resize=change)
        await asyncio.wait_for(next_one, 10)

    asyncio.run(ask())
    assert driver.asked == [(0, 8, 600.0), (1, 4, 0.0)]


def test_workers_that_have_left_end_before_others_may_come():
    driver = Driver("")
    driver.state.roles["worker", 2] = Role(phase=RolePhase.RUNNING)

    async def ask():
        asking = asyncio.ensure_future(resize(driver, 3, 0.0))
        await asyncio.sleep(0.01)
        assert driver.asked == [], "it would be ended on its way"
        driver.state.roles["worker", 2] = Role(phase=RolePhase.RETURNED)
        await asyncio.wait_for(asking, 10)

    asyncio.run(ask())
    assert driver.asked == [(0, 3, 0.0)]


@pytest.mark.parametrize(
    "worker", [Role(phase=RolePhase.STARTING, attempt=1), Role(phase=RolePhase.RUNNING, meets_at="a:1", meets_or=3)]
)
def test_a_lost_worker_is_replaced_before_another_number_is_asked_for(worker):
    driver = Driver("")
    driver.state.roles["worker", 1] = worker

    async def ask():
        asking = asyncio.ensure_future(resize(driver, 3, 0.0))
        await asyncio.sleep(0.01)
        assert driver.asked == []
        driver.state.roles["worker", 1] = Role(phase=RolePhase.RUNNING)
        await asyncio.wait_for(asking, 10)

    asyncio.run(ask())
    assert driver.asked == [(0, 3, 0.0)]


def test_a_run_that_ends_meanwhile_is_over():
    driver = Driver(None)
    for _ in range(2):
        with pytest.raises(ClosedError, match="Run run-1 is over: it has ended"):
            asyncio.run(resize(driver, 3, 0.0))
    assert len(driver.asked) == 1
