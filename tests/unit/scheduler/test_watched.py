"""Waiting for what changes again and again."""

from __future__ import annotations

import asyncio

from dask_train.scheduler.watched import Watched, changed_within

LONG_S = 60.0


def test_everyone_who_waits_looks_again_at_each_change():
    async def run() -> None:
        watched, seen = Watched(), list[int]()

        async def wait(number: int) -> None:
            assert await changed_within(watched.changed, LONG_S)
            seen.append(number)

        for _ in range(2):
            waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in waiting), "an earlier change is no news"
            watched.wake()
            await asyncio.gather(*waiting)
        assert sorted(seen) == [0, 0, 1, 1, 2, 2]

    asyncio.run(run())


def test_a_change_between_a_look_and_the_wait_is_not_missed():
    async def run() -> bool:
        watched = Watched()
        changed = watched.changed  # taken with the look
        watched.wake()
        return await changed_within(changed, 0.0)

    assert asyncio.run(run())


def test_no_change_in_time():
    async def run() -> list[bool]:
        watched = Watched()
        return [await changed_within(watched.changed, seconds) for seconds in (-1.0, 0.0, 0.001)]

    assert asyncio.run(run()) == [False, False, False]
