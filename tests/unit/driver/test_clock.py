"""The clock of a run."""

from __future__ import annotations

import time

from dask_train.driver import loop as loop_module
from dask_train.driver.clock import RunClock
from dask_train.process import messages
from dask_train.run.commands import Verdict
from dask_train.run.messages import Kill


def test_it_goes_on_evenly_from_the_time_of_day(monkeypatch):
    before = time.time()
    clock = RunClock()
    assert before - 1 <= clock() <= time.time() + 1
    first, set_to = clock(), time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: set_to)
    assert first <= clock() < first + 60


async def test_no_deadline_of_a_run_sees_a_step_of_the_systems_clock(driven, monkeypatch):
    monkeypatch.setattr(loop_module, "TICK_S", 0.01)
    real = time.time
    for step_s in (3600, -3600):
        async with driven(plan={"progress_s": 60.0, "launch_s": 60.0}) as it:
            await it.running()
            monkeypatch.setattr(time, "time", lambda step_s=step_s: real() + step_s)
            first = it.driver.now()
            it.scheduler.tells(messages.Progress(steps=1, doing="x", moved=True, awaits_client=False), "worker")
            await it.scheduler.until(lambda first=first: it.driver.state.progressed > first)
            await it.scheduler.until(lambda first=first: it.driver.now() > first + 0.1)
            assert not it.scheduler.sent(Kill)
            assert not it.scheduler.sent(messages.Diagnose)
            it.returns()
        assert it.driver.finish.verdict is Verdict.OK
        assert all(abs(event.time - first) < 60 for event, _ in it.driver.history.log)
        monkeypatch.setattr(time, "time", real)


def test_time_in_which_the_process_did_not_run_is_left_out():
    clock = RunClock()
    before = clock()
    clock.leave_out(3600)
    assert before - 3601 < clock() < before - 3500


async def test_a_client_that_slept_goes_on_with_its_run(driven, monkeypatch):
    """The event loop stands still for longer than anything may take, as that of a process that was stopped."""
    monkeypatch.setattr(loop_module, "SLEPT_S", 0.2)
    async with driven(plan={"progress_s": 0.5}) as it:
        await it.running()
        time.sleep(1.0)
        first = it.driver.now()
        it.scheduler.tells(messages.Progress(steps=1, doing="x", moved=True, awaits_client=False), "worker")
        await it.scheduler.until(lambda: it.driver.now() < first)
        it.returns()
    assert it.driver.finish.verdict is Verdict.OK
    assert not it.scheduler.sent(messages.Diagnose)
