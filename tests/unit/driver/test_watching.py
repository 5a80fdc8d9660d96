"""A run as a display wants it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.driver import watching
from dask_train.driver.watching import seconds_of, seen, status_of, watch_until
from dask_train.process import messages


async def test_its_status_is_told_in_plain_values(driven):
    async with driven(worker=2, ps=1) as it:
        await it.running()
        it.scheduler.tells(messages.Reported(scores=[{"loss": 0.5, "role": "worker", "rank": 1}]), "worker", 1)
        await it.scheduler.until(lambda: it.driver.history.scores)
        status, more = status_of(it.driver), seen(it.driver)
        assert status["phase"] == "running"
        assert [(role["role"], role["rank"], role["phase"], role["pid"]) for role in status["roles"]] == [
            ("worker", 0, "running", 100),
            ("worker", 1, "running", 101),
            ("ps", 0, "running", 102),
        ]
        assert not {"last_scores", "num_restarts"} & set(status), "for those who look from elsewhere"
        assert (more["run"], more["num_alive"], more["training"]) == ("run", 3, ["worker"])
        assert [score["loss"] for score in more["scores"]] == [0.5]
        it.returns(0)
        it.returns(1)
    assert seen(it.driver)["num_alive"] == 0
    assert "its training roles have returned" in status_of(it.driver)["outcome"]


def test_its_seconds_stop_with_it():
    attempts = [SimpleNamespace(started=100.0, ended=None)]
    driver: Any = SimpleNamespace(history=SimpleNamespace(attempts=attempts, now=lambda: 130.0))
    assert seconds_of(driver) == 30.0
    attempts[0].ended = 110.0
    attempts.append(SimpleNamespace(started=111.0, ended=None))
    assert seconds_of(driver) == 30.0, "from the first attempt on"
    attempts[1].ended = 120.0
    assert seconds_of(driver) == 20.0


@pytest.fixture
def driver(monkeypatch):
    """One that is over after ``looks`` looks of somebody who waits."""

    async def until(met: Any, deadline: float) -> bool:
        it.waited.append(deadline - time.monotonic() > 0)
        it.over = len(it.waited) > it.looks
        return met()

    it: Any = SimpleNamespace(looks=3, waited=[], over=False, until=until)
    it.peer = SimpleNamespace(run=lambda function, *args: asyncio.run(function(*args)))
    monkeypatch.setattr(watching, "seen", lambda driver: {"over": driver.over})
    return it


def test_it_is_watched_at_once_and_until_it_is_over(driver):
    watched = []
    watch_until(driver, watched.append, None)
    assert watched == [{"over": False}] * 3 + [{"over": True}] * 2, "its end is shown"
    assert driver.waited[:2] == [False, True], "something is to be seen at once"


def test_a_deadline_ends_it_with_a_last_look(driver):
    driver.looks, watched = 1 << 30, []
    watch_until(driver, watched.append, time.monotonic() - 1.0)
    assert watched == [{"over": False}]
    watch_until(driver, watched.append, time.monotonic() + 0.01)
    assert len(watched) > 2


def test_one_that_is_over_is_shown_once(driver):
    driver.over, driver.looks, watched = True, 0, []
    watch_until(driver, watched.append, None)
    assert watched == [{"over": True}]
