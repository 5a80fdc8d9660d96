"""The scores of a run as whoever holds it follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from dask_train.driver.scores import Scores

LONG_S = 60.0


class Driver:
    """A run that scores are told of; ``waits`` is how many wait for it."""

    def __init__(self) -> None:
        self.history = SimpleNamespace(scores=[])
        self.over = False
        self.waits = 0
        self.peer = SimpleNamespace(run=lambda function, *args: asyncio.run(function(*args)))
        self._news = asyncio.Event()

    def told(self, *losses: float, over: bool = False) -> None:
        self.history.scores += [{"loss": loss} for loss in losses]
        self.over = over
        self._news.set()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    async def until(self, met: Callable[[], bool]) -> bool:
        while not met():
            assert self.waits == 1, "the roles are told that they are waited for"
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), LONG_S)
        return True


def scores(driver: Driver) -> Any:
    return Scores(object(), driver)  # type: ignore[arg-type]


def test_those_of_a_run_that_is_over_are_all_told_again_and_again():
    driver = Driver()
    driver.told(3.0, 2.0, over=True)
    followed = scores(driver)
    for _ in range(2):
        assert [score["loss"] for score in followed] == [3.0, 2.0]
    assert driver.waits == 0


def test_a_run_without_any():
    driver = Driver()
    driver.told(over=True)
    assert list(scores(driver)) == []


def test_what_comes_with_the_end_is_not_missed():
    async def run() -> None:
        driver, seen = Driver(), list[float]()

        async def follow() -> None:
            async for score in scores(driver):
                seen.append(score["loss"])

        following = asyncio.ensure_future(follow())
        driver.told(3.0)
        while seen != [3.0]:
            await asyncio.sleep(0)
        driver.told(2.0, 1.0, over=True)
        await asyncio.wait_for(following, LONG_S)
        assert seen == [3.0, 2.0, 1.0]

    asyncio.run(run())


def test_who_follows_no_longer_is_not_counted_as_waiting():
    async def run() -> None:
        driver = Driver()
        following = asyncio.ensure_future(anext(aiter(scores(driver))))
        while not driver.waits:
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait([following])
        assert driver.waits == 0

    asyncio.run(run())


def test_a_run_is_held_by_who_follows_it():
    run = SimpleNamespace()
    assert Scores(run, Driver())._run is run, "one that nobody holds is stopped"  # type: ignore[arg-type]


def test_they_tell_how_many_there_are():
    driver = Driver()
    assert repr(scores(driver)) == "<Scores: 0 so far; iterate to follow them>"
    driver.told(2.0, 1.0)
    assert repr(scores(driver)) == "<Scores: 2 so far, the last one {'loss': 1.0}; iterate to follow them>"
