"""A run on its way: who waits for it, and what is done beside it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.data.parcel import Parcel
from dask_train.driver.job import Job
from dask_train.driver.run_context import RunContext, in_words
from dask_train.driver.settings import RunSettings
from dask_train.errors import RoleLostError, StalledError
from dask_train.frameworks.registry import find_framework
from dask_train.run import events
from dask_train.run.state import RunPlan

LONG_S = 60.0


def context() -> RunContext:
    plan = RunPlan(counts={"worker": 1}, training=frozenset({"worker"}))
    job = Job(
        id="run",
        plan=plan,
        functions={"worker": Parcel(pickle=b"")},
        names={"worker": "train"},
        framework=find_framework(None),
        run=RunSettings(),
        checkpoint=None,
    )
    peer: Any = SimpleNamespace()
    return RunContext(peer, job, SimpleNamespace())  # type: ignore[arg-type]


async def event_of(it: RunContext) -> events.Event:
    return await asyncio.wait_for(it._events.get(), LONG_S)


async def test_who_waits_looks_at_each_change_until_it_is_met():
    it, looks = context(), list[int]()

    def met() -> bool:
        looks.append(len(looks))
        return len(looks) == 3

    waiting = asyncio.ensure_future(it.until(met))
    for number in (1, 2):
        while len(looks) < number:
            await asyncio.sleep(0)
        assert not waiting.done()
        it.tell()
    assert await asyncio.wait_for(waiting, LONG_S)
    assert looks == [0, 1, 2]


@pytest.mark.parametrize("after_s", [-1.0, 0.0, 0.002])
async def test_a_deadline_ends_the_wait(after_s):
    assert not await context().until(lambda: False, time.monotonic() + after_s)


async def test_what_is_met_is_met_whatever_the_deadline():
    assert await context().until(lambda: True, time.monotonic() - 1.0)


async def test_what_fails_beside_the_loop_fails_the_run():
    it = context()

    async def fails() -> None:
        raise StalledError("Nothing came.")

    it.spawn(fails())
    event = await event_of(it)
    assert isinstance(event.what, events.DriverFailed)
    assert event.what.error == "Nothing came."
    assert isinstance(it.history.driver_error, StalledError)
    assert not it.is_unanswered
    assert it._tasks == set()


async def test_what_is_cancelled_or_returns_is_no_event():
    it = context()
    cancelled, returns = it.spawn(asyncio.sleep(LONG_S)), it.spawn(asyncio.sleep(0))
    cancelled.cancel()
    await asyncio.wait([cancelled, returns])
    await asyncio.sleep(0)
    assert it._events.empty()
    assert it._tasks == set(), "nothing is held of them"
    assert it.history.driver_error is None


async def test_a_scheduler_that_does_not_answer_is_told_no_more():
    it = context()
    it.history.driver_error = RoleLostError("The scheduler did not answer.")
    assert it.is_unanswered


async def test_a_task_is_held_until_it_is_done():
    it = context()
    task = it.spawn(asyncio.sleep(LONG_S))
    assert it._tasks == {task}, "the event loop itself keeps only a weak reference"
    task.cancel()
    await asyncio.wait([task])


def test_errors_of_others_are_told_with_their_kind():
    assert in_words(StalledError("Nothing came.", "It hangs.", "Look.")) == "Nothing came. It hangs. Look."
    assert in_words(ZeroDivisionError("a bug")) == "ZeroDivisionError: a bug"
