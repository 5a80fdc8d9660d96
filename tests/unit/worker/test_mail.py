"""An agent's correspondence, with a scheduler whose answers get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dask_train.errors import RoleLostError
from dask_train.scheduler.run_requests import RunRequests
from dask_train.worker import mail as mail_module
from dask_train.worker.mail import Mail


class Scheduler:
    """The real handlers, with one run and one agent; drops the answers to the questions of these numbers."""

    poll_s = 0.5

    def __init__(self, scheduler: Any, *lost: int) -> None:
        self.requests = RunRequests(scheduler)
        self._lost, self.num_asked = set(lost), 0

    async def open(self) -> None:
        await self.requests.train_run_open(run="r", client="me", info={}, lease_s=300.0, keys=[])
        await self.requests.train_run_agent(run="r", agent="g", address="a")

    async def ask(self, handler: str, **message: Any) -> dict[str, Any]:
        self.num_asked += 1
        assert message.get("timeout_s", 0.0) in (0.0, self.poll_s, mail_module.LAST_S)
        number = self.num_asked
        waits = {} if handler == "train_run_agent_ends" else {"timeout_s": 0.0}
        answer = await getattr(self.requests, handler)(**{**message, **waits})
        if number in self._lost:
            raise RoleLostError("The connection broke.")
        return answer

    async def events(self) -> list[Any]:
        return (await self.requests.train_run_events(run="r", since=0, timeout_s=0.0, progress_s=0.0))["events"]


@pytest.fixture
def story(a_scheduler, monkeypatch) -> Callable[..., Any]:
    """Runs a test's coroutine with a scheduler that drops some answers, and an agent's mail there."""
    monkeypatch.setattr(mail_module, "ASK_AGAIN_S", 0.0)

    async def as_it_is(work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    def tell(work: Callable[[Scheduler, Mail], Coroutine[Any, Any, Any]], *lost: int, closing: bool = False) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(10):
                scheduler = Scheduler(a_scheduler(a=1), *lost)
                await scheduler.open()
                return await work(scheduler, Mail(scheduler, "r", "g", as_it_is, lambda: closing))

        return asyncio.run(within())

    return tell


async def sent(mail: Mail, *bundles: list[Any]) -> None:
    """Send bundles, one after the other."""
    gone = asyncio.Event()
    sending = asyncio.ensure_future(mail.send(gone.set))
    for bundle in bundles:
        gone.clear()
        for event in bundle:
            mail.put(event, within_s=0.0)
        await gone.wait()
    sending.cancel()


def test_events_that_are_sent_again_count_once(story):
    async def work(scheduler: Scheduler, mail: Mail) -> list[Any]:
        await sent(mail, ["a", "b"], ["c"], ["d"])
        return await scheduler.events()

    assert story(work, 1, 2, 4) == ["a", "b", "c", "d"]


def test_what_may_wait_goes_with_what_may_not(story):
    async def work(scheduler: Scheduler, mail: Mail) -> list[Any]:
        gone = asyncio.Event()
        sending = asyncio.ensure_future(mail.send(gone.set))
        mail.put("progress", within_s=60.0)
        await asyncio.sleep(0.01)
        assert await scheduler.events() == []
        mail.put("report", within_s=0.01)
        await gone.wait()
        gone.clear()
        mail.put("more progress", within_s=0.01)  # and goes by itself in the end
        await gone.wait()
        sending.cancel()
        return await scheduler.events()

    assert story(work) == ["progress", "report", "more progress"]


def test_commands_come_once(story):
    async def work(scheduler: Scheduler, mail: Mail) -> list[Any]:
        await scheduler.requests.train_run_post(run="r", messages=[["g", ["start", "load"]]])
        found = []
        async for command in mail.commands():
            found.append(command)
            if command == "load":
                await scheduler.requests.train_run_post(run="r", messages=[["g", ["go"]]])
            if command == "go":
                await scheduler.requests.train_run_end(run="r", summary={})
        return found

    assert story(work, 1, 3) == ["start", "load", "go"]


def test_a_scheduler_that_never_answers_ends_the_run_here(story, monkeypatch):
    monkeypatch.setattr(mail_module, "PATIENCE_S", 0.05)

    async def work(_: Scheduler, mail: Mail) -> None:
        async for _command in mail.commands():
            pytest.fail("there are none")
        mail.put("a", within_s=0.0)
        await mail.send(lambda: pytest.fail("nothing has gone"))

    story(work, *range(1, 1_000_000))


def test_a_dask_worker_that_closes_asks_nothing_again(story):
    async def work(scheduler: Scheduler, mail: Mail) -> int:
        mail.put("a", within_s=0.0)
        await mail.send(lambda: pytest.fail("nothing has gone"))
        return scheduler.num_asked

    assert story(work, 1, closing=True) == 1


def test_output_that_has_not_arrived_is_sent_in_the_end(story):
    async def work(scheduler: Scheduler, mail: Mail) -> list[Any]:
        mail.put_output(("worker", 0, 1, 3, b"the"))
        await mail.send_last_output()
        return (await scheduler.requests.train_run_show(run="r", output=True))["output"]

    assert story(work) == [["worker", 0, 1, 3, b"the"]]


def test_it_is_finished_when_the_scheduler_has_all_that_was_put(story):
    async def work(scheduler: Scheduler, mail: Mail) -> list[Any]:
        sending = asyncio.ensure_future(mail.send(lambda: None))
        mail.put("a", within_s=0.0)
        mail.put("b", within_s=60.0)
        await mail.finish()
        sending.cancel()
        assert scheduler.requests.runs.by_id["r"].finished == {"g"}
        return await scheduler.events()

    assert story(work, 1) == ["a", "b"]


def test_without_anything_it_is_finished_at_once(story):
    async def work(scheduler: Scheduler, mail: Mail) -> set[str]:
        await mail.finish()
        return scheduler.requests.runs.by_id["r"].finished

    assert story(work) == {"g"}
