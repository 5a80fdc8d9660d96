"""Several runs of one client: what each has told since the last look, and waiting for the next word of any."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dask_train.driver.several_runs import FollowedRun, stop_all, wait_for_any
from dask_train.run.state import Phase
from dask_train.scheduler.watched import Watched, changed_within

LONG_S = 60.0


class Driver:
    """A run that tells what the test says."""

    def __init__(self) -> None:
        self.history = SimpleNamespace(scores=[], values=deque())
        self.state, self.over, self.trials = SimpleNamespace(phase=Phase.PLACING), False, []
        self.num_waiting = 0
        self._news = Watched()

    def changes(self, change: Callable[[], Any]) -> None:
        change()
        self._news.wake()

    async def until(self, met: Callable[[], bool], deadline: float) -> bool:
        self.num_waiting += 1
        try:
            while not met():
                if not await changed_within(self._news.changed, deadline - time.monotonic()):
                    return met()
            return True
        finally:
            self.num_waiting -= 1


def followed() -> tuple[FollowedRun, Driver]:
    driver, reasons = Driver(), list[str]()

    async def stop(reason: str) -> None:
        await asyncio.sleep(0)
        reasons.append(reason)
        driver.over = True

    run: Any = SimpleNamespace(_driver=driver, _stop=stop, stop_soon=reasons.append, reasons=reasons)
    return FollowedRun(run), driver


PEER: Any = SimpleNamespace(run=lambda function, *args: asyncio.run(function(*args)))


def test_what_it_has_told_is_given_once():
    run, driver = followed()
    driver.history.scores += [1, 2]
    assert (run.new_scores(), run.new_scores()) == ([1, 2], [])
    driver.history.scores += [3]
    assert run.new_scores() == [3]
    driver.history.values += [("worker", rank, pickle.dumps({"rank": rank})) for rank in (1, 0)]
    assert run.new_values() == [("worker", 1, {"rank": 1}), ("worker", 0, {"rank": 0})]
    assert run.new_values() == []


def test_its_trials_are_known_to_who_looks_from_elsewhere():
    run, driver = followed()
    run.tell_trial({"number": 3})
    assert driver.trials == [{"number": 3}]


def test_each_kind_of_news_ends_the_wait_once_until_it_is_looked_at():
    async def moves(run: FollowedRun, *, soon: bool) -> None:
        """Whether there is something at once."""
        moved = asyncio.ensure_future(run.moved(time.monotonic() + LONG_S))
        for _ in range(3):
            await asyncio.sleep(0)
        assert moved.done() is soon
        moved.cancel()
        await asyncio.wait([moved])

    async def story() -> None:
        run, driver = followed()
        await moves(run, soon=False)
        for news, look in (
            (lambda: driver.history.scores.append(1), run.new_scores),
            (lambda: driver.history.values.append(("worker", 0, pickle.dumps(1))), run.new_values),
            (lambda: setattr(driver.state, "phase", Phase.LAUNCHING), lambda: run.is_placed),
        ):
            news()
            await moves(run, soon=True)
            look()
            await moves(run, soon=False)
        assert run.is_placed
        driver.state.phase = Phase.STOPPING
        await moves(run, soon=True)
        await moves(run, soon=False)  # as it has room no more, nobody asks
        driver.over = True
        await moves(run, soon=True)
        assert run.over
        assert driver.num_waiting == 0

    asyncio.run(story())


def test_the_next_word_of_any_ends_the_wait_for_all():
    runs = [followed() for _ in range(3)]

    def run(function: Any, *args: Any) -> None:
        async def beside() -> None:
            waiting = asyncio.ensure_future(function(*args))
            while any(driver.num_waiting == 0 for _, driver in runs):
                await asyncio.sleep(0)
            driver = runs[1][1]
            driver.changes(lambda: driver.history.scores.append(1))
            await asyncio.wait_for(waiting, LONG_S)

        asyncio.run(beside())

    wait_for_any(SimpleNamespace(run=run), [each for each, _ in runs], 2 * LONG_S)  # type: ignore[arg-type]
    assert [driver.num_waiting for _, driver in runs] == [0, 0, 0], "nobody waits any more"
    assert runs[1][0].new_scores() == [1]


def test_the_wait_ends_in_time_also_where_there_is_no_run():
    for runs in ([], [followed()[0]]):
        began = time.monotonic()
        wait_for_any(PEER, runs, 0.002)
        assert time.monotonic() - began >= 0.002


def test_all_that_go_on_are_ended_and_waited_for():
    (first, _), (over, of_it), (last, _) = runs = [followed() for _ in range(3)]
    of_it.over = True
    stop_all(PEER, [run for run, _ in runs], "enough")
    assert [run.run.reasons for run in (first, over, last)] == [["enough"], [], ["enough"]]
    assert all(run.over for run, _ in runs)
    first.stop_soon("again")
    assert first.run.reasons[-1] == "again"
