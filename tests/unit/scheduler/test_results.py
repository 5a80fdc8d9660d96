"""Where results lie, for those who wait until they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.scheduler.watched import Results

LONG_S = 60.0


class Tasks:
    """A scheduler's tasks, of which each change is told."""

    def __init__(self) -> None:
        self.tasks: dict[str, Any] = {}
        self.results = Results(self)

    def turns(self, key: str, state: str, *holders: str) -> None:
        self.tasks[key] = SimpleNamespace(
            state=state, who_has=[SimpleNamespace(address=address) for address in holders]
        )
        self.results.changed(key)

    def forgets(self, key: str) -> None:
        del self.tasks[key]
        self.results.changed(key)


@pytest.fixture
def play() -> Callable[[Callable[[Tasks], Coroutine[Any, Any, None]]], None]:
    """Runs a story; nobody may be waited for any more in the end."""

    def run(story: Callable[[Tasks], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            it = Tasks()
            async with asyncio.timeout(LONG_S):
                await story(it)
            assert it.results._awaited == {}

        asyncio.run(whole())

    return run


async def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A question that is not answered at once."""
    asked = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    assert not asked.done()
    return asked


def test_what_lies_somewhere_is_told_at_once(play):
    async def story(it):
        it.turns("x", "memory", "a")
        it.turns("y", "processing")
        assert await it.results.once(["x", "y"], True, LONG_S) == {"where": [["x", ["a"]], ["y", []]], "lost": []}

    play(story)


@pytest.mark.parametrize("duplicated", [False, True])
def test_the_first_that_comes_ends_the_wait(play, duplicated):
    async def story(it):
        it.turns("x", "processing")
        it.turns("y", "waiting")
        asked = await begun(it.results.once(["x", "y", *["y"] * duplicated], True, LONG_S))
        it.turns("x", "no-worker")
        await asyncio.sleep(0)
        it.turns("z", "memory", "a")
        await asyncio.sleep(0)
        assert not asked.done(), "neither is there"
        it.turns("y", "memory", "b")
        assert dict((await asked)["where"]) == {"x": [], "y": ["b"]}

    play(story)


@pytest.mark.parametrize("how", ["it erred", "it was forgotten", "it was never known"])
def test_one_that_will_never_come_ends_the_wait(play, how):
    async def story(it):
        if how == "it was never known":
            assert (await it.results.once(["x"], True, LONG_S))["lost"] == ["x"]
            return
        it.turns("x", "processing")
        asked = await begun(it.results.once(["x"], True, LONG_S))
        it.turns("x", "erred") if how == "it erred" else it.forgets("x")
        assert (await asked)["lost"] == ["x"]

    play(story)


def test_the_wait_until_none_lies_anywhere(play):
    async def story(it):
        for key in "xy":
            it.turns(key, "memory", "a")
        asked = await begun(it.results.once(["x", "y"], False, LONG_S))
        it.turns("x", "released")
        await asyncio.sleep(0)
        assert not asked.done()
        it.forgets("y")
        assert await asked == {"where": [["x", []]], "lost": ["y"]}

    play(story)


def test_what_does_not_come_in_time_is_told_as_it_is(play):
    async def story(it):
        it.turns("x", "processing")
        for seconds in (0.0, 0.002):
            assert await it.results.once(["x"], True, seconds) == {"where": [["x", []]], "lost": []}

    play(story)


def test_who_waits_no_longer_is_forgotten(play):
    async def story(it):
        it.turns("x", "processing")
        gone, stays = [await begun(it.results.once(["x"], True, LONG_S)) for _ in range(2)]
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        it.turns("x", "memory", "a")
        assert (await stays)["where"] == [["x", ["a"]]]

    play(story)
