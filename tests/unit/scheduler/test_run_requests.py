"""What drivers and agents may ask about runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.scheduler import run_requests
from dask_train.scheduler.run_requests import RunRequests
from dask_train.scheduler.runs import KEPT_OUTPUT, worker_lost

LONG_S = 60.0  # nobody waits so long: what is waited for comes


class Desk:
    """The handlers, by name without ``train_run``, and shortened."""

    lease_s = 300.0

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.requests = RunRequests(scheduler)
        self.runs = self.requests.runs
        self.num_told: Counter[str] = Counter()

    async def open(self, run: str = "r1", client: str = "me", **more: bool) -> dict[str, Any]:
        return await self.requests.train_run_open(
            run=run, client=client, info={"roles": {"worker": 2}}, lease_s=self.lease_s, keys=["part-1"], **more
        )

    async def place(
        self,
        run: str = "r1",
        count: int = 2,
        *,
        request: str = "w",
        on: list[str] | None = None,
        timeout_s: float = 0.0,
        **needs,
    ) -> dict[str, Any]:
        roles = [["worker", rank, needs] for rank in range(count)]
        return await self.requests.train_run_place(run=run, request=request, roles=roles, on=on, timeout_s=timeout_s)

    async def tell(
        self, events: list[Any], *, output: Any = (), timeout_s: float = 0.0, agent: str = "g", again: bool = False
    ) -> str:
        """What an agent tells; ``again`` where it tells what it has told before, and perhaps more."""
        number = 0 if again else self.num_told[agent]
        self.num_told[agent] = number + len(events)
        answer = await self.requests.train_run_tell(
            run="r1", agent=agent, number=number, events=events, output=list(output), timeout_s=timeout_s
        )
        return answer["status"]

    async def events(self, since: int, timeout_s: float = 0.0, progress_s: float = 0.0) -> dict[str, Any]:
        return await self.requests.train_run_events(run="r1", since=since, timeout_s=timeout_s, progress_s=progress_s)

    async def next(self, seen: int = 0, timeout_s: float = 0.0, agent: str = "g") -> dict[str, Any]:
        return await self.requests.train_run_next(run="r1", agent=agent, seen=seen, timeout_s=timeout_s)

    async def post(self, *commands: str, agent: str = "g") -> str:
        return (await self.requests.train_run_post(run="r1", messages=[[agent, list(commands)]]))["status"]

    async def agent(self, agent: str = "g", address: str = "a") -> str:
        return (await self.requests.train_run_agent(run="r1", agent=agent, address=address))["status"]

    async def end(self, run: str = "r1") -> None:
        await self.requests.train_run_end(run=run, summary={"outcome": "done"})

    async def room(self, known: int = -1, timeout_s: float = 0.0, run: str = "r1") -> dict[str, Any]:
        places = {"on": None, "host": "h", "needs": {}}
        return await self.requests.train_run_room(run=run, places=places, known=known, timeout_s=timeout_s)

    async def running(self, **more: bool) -> None:
        """Run r1 has both its roles, and an agent g on a."""
        await self.open(**more)
        assert (await self.place())["status"] == "OK"
        assert await self.agent() == "OK"


@pytest.fixture
def desk(a_scheduler: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a test's coroutine with the handlers of a scheduler with Dask workers a and b, a thread each."""

    def try_it(story: Callable[[Desk], Any]) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(10):
                return await story(Desk(a_scheduler(a=1, b=1)))

        return asyncio.run(within())

    return try_it


async def waits(work: Any) -> asyncio.Task[Any]:
    """A question that is not answered yet."""
    task = asyncio.ensure_future(work)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


# Places


def test_room_is_found_at_once(desk):
    async def story(desk):
        assert await desk.open() == {"status": "OK"}
        answer = await desk.place()
        assert answer == {
            "status": "OK",
            "places": [["worker", 0, "a", "h", ""], ["worker", 1, "b", "h", ""]],
            "threads": 2,
        }
        assert desk.scheduler.locked == {"a": ["train-roles-on-a"], "b": ["train-roles-on-b"]}

    desk(story)


def test_room_is_waited_for(desk):
    async def story(desk):
        await desk.running()
        await desk.open("r2")
        answer = await desk.place("r2", 1)
        assert answer["status"] == "waiting"
        assert "1 role needs a free thread, and 0 of 2 are free. a carries 1 role of r1." in answer["why"]
        asked = await waits(desk.place("r2", 1, timeout_s=LONG_S))
        await desk.requests.train_run_free(run="r1", roles=[["worker", 1]])
        assert (await asked)["places"] == [["worker", 0, "b", "h", ""]]

    desk(story)


def test_room_that_was_granted_between_two_questions(desk):
    async def story(desk):
        await desk.running()
        await desk.open("r2")
        await desk.place("r2", 1)
        await desk.end("r1")
        assert (await desk.place("r2", 1))["status"] == "OK"
        assert desk.requests._requests == {}

    desk(story)


def test_a_dask_worker_that_comes_brings_room(desk):
    async def story(desk):
        await desk.running()
        await desk.open("r2")
        asked = await waits(desk.place("r2", 2, timeout_s=LONG_S))
        desk.scheduler.add("c", 2)
        desk.requests.worker_came()
        assert {place[2] for place in (await asked)["places"]} == {"c"}

    desk(story)


def test_room_that_can_never_be(desk):
    async def story(desk):
        await desk.open()
        assert await desk.place(GPU=1) == {"status": "never", "why": "no Dask worker declares GPU=1"}
        answer = await desk.place(on=["a", "x", "y"])
        assert answer == {"status": "unknown", "addresses": ["x", "y"], "known": ["a", "b"]}
        assert desk.requests._requests == {}

    desk(story)


def test_a_request_that_is_given_up(desk):
    async def story(desk):
        await desk.running()
        await desk.open("r2")
        asked = await waits(desk.place("r2", 1, timeout_s=LONG_S))
        await desk.requests.train_run_free(run="r2", roles=[["worker", 0]])
        assert (await asked)["status"] == "gone"
        assert (desk.requests._requests, desk.requests.placement_queue.waiting) == ({}, [])

    desk(story)


def test_threads_of_a_dask_worker_count_once(desk):
    async def story(desk):
        await desk.open()
        assert (await desk.place(count=5))["threads"] == 2

    desk(story)


# The end


def test_a_run_that_ends_gives_all_back(desk):
    async def story(desk):
        await desk.running()
        command = await waits(desk.next(timeout_s=LONG_S))
        event = await waits(desk.events(0, timeout_s=LONG_S))
        await desk.end()
        assert [(await command)["status"], (await event)["status"]] == ["gone", "gone"]
        assert (desk.scheduler.locked, desk.runs.by_id) == ({}, {})
        assert [await desk.tell([]), (await desk.next())["status"], (await desk.events(0))["status"]] == ["gone"] * 3
        assert (await desk.place())["status"] == "gone"
        assert [await desk.post("start"), await desk.agent()] == ["gone", "gone"]
        assert (await desk.requests.train_run_show(run="r", output=False))["summary"] == {"outcome": "done"}

    desk(story)


def test_a_client_that_leaves_ends_its_runs_and_frees_their_room(desk):
    async def story(desk):
        desk.scheduler.clients["you"] = None
        await desk.running()
        await desk.open("r2", "you")
        await desk.open("r3")
        asked = await waits(desk.place("r2", 2, timeout_s=LONG_S))
        await desk.place("r3", 1)
        assert len(desk.requests._requests) == 2
        desk.requests.client_left("me")
        assert len((await asked)["places"]) == 2
        assert list(desk.runs.by_id) == ["r2"]
        assert desk.runs.find("r1").summary == {"phase": "over", "outcome": "its client left"}
        assert (desk.requests._requests, desk.requests.placement_queue.waiting) == ({}, []), "nor is its request kept"

    desk(story)


def test_a_client_that_has_left_opens_no_run(desk):
    async def story(desk):
        assert await desk.open(client="nobody") == {"status": "no client"}
        assert desk.runs.by_id == {}

    desk(story)


# The post


def test_commands_reach_an_agent_in_order_and_once(desk):
    async def story(desk):
        await desk.running()
        first = await waits(desk.next(timeout_s=LONG_S))
        assert await desk.post("start", "load") == "OK"
        assert (await first)["commands"] == ["start", "load"]
        assert (await desk.next(0))["commands"] == ["start", "load"], "asked again, it comes again"
        later = await waits(desk.next(2, timeout_s=LONG_S))
        await desk.post("go")
        assert await later == {"status": "OK", "commands": ["go"]}
        assert await desk.next(3) == {"status": "OK", "commands": []}

    desk(story)


def test_post_for_an_agent_waits_for_it_and_goes_to_no_other(desk):
    async def story(desk):
        await desk.running()
        assert await desk.agent("h", "b") == "OK"
        await desk.post("start", agent="h")
        assert await desk.post("start", agent="unknown") == "OK", "dropped"
        assert (await desk.next())["commands"] == []
        assert (await desk.next(agent="h"))["commands"] == ["start"]
        assert await desk.agent("i", "no such Dask worker") == "gone"

    desk(story)


def test_events_reach_the_driver_in_order_and_once(desk):
    async def story(desk):
        await desk.running()
        first = await waits(desk.events(0, timeout_s=LONG_S))
        assert await desk.tell([{"kind": "ready"}, {"kind": "started"}]) == "OK"
        assert (await first)["events"] == [{"kind": "ready"}, {"kind": "started"}]
        assert len((await desk.events(0))["events"]) == 2
        later = await waits(desk.events(2, timeout_s=LONG_S))
        await desk.tell([{"kind": "ended"}])
        assert await later == {"status": "OK", "events": [{"kind": "ended"}]}

    desk(story)


def test_progress_waits_for_more_of_it_and_all_else_for_nothing(desk):
    async def story(desk):
        await desk.running()
        await desk.agent("h", "b")
        asked = await waits(desk.events(0, timeout_s=LONG_S, progress_s=LONG_S))
        await desk.tell([["Progress", {}, None]])
        await desk.tell([["Progress", {}, None]], agent="h")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        await desk.tell([["Reported", {}, None]])
        assert [name for name, *_ in (await asked)["events"]] == ["Progress", "Progress", "Reported"]
        await desk.tell([["Progress", {}, None]])
        assert len((await desk.events(3, progress_s=0.001))["events"]) == 1
        asked = await waits(desk.events(3, progress_s=LONG_S))
        await desk.end()
        assert (await asked)["status"] == "gone"

    desk(story)


def test_what_an_agent_tells_again_counts_once(desk):
    """Its connection broke while it waited for the answer, so it can't know what had arrived."""

    async def story(desk):
        await desk.running()
        assert await desk.agent("h", "b") == "OK"
        await desk.tell(["a", "b"])
        await desk.tell(["a", "b"], again=True)
        await desk.tell(["of another"], agent="h")
        await desk.tell(["a", "b", "c"], again=True)
        await desk.tell(["d"])
        assert (await desk.events(0))["events"] == ["a", "b", "of another", "c", "d"]
        assert (await desk.events(4))["events"] == ["d"], "whatever the driver has taken since"
        await desk.tell(["a", "b", "c", "d"], again=True)
        assert (await desk.events(4))["events"] == ["d"]

    desk(story)


def test_an_agent_that_tells_faster_than_the_driver_reads_is_held_back(desk, monkeypatch):
    monkeypatch.setattr(run_requests, "MAX_BEHIND", 3)

    async def story(desk):
        await desk.running()
        assert await desk.tell([1, 2, 3], timeout_s=LONG_S) == "OK"
        held = await waits(desk.tell([4, 5], timeout_s=LONG_S))
        assert (await desk.events(0))["events"] == [1, 2, 3], "no more at a time"
        assert not held.done()
        assert (await desk.events(1))["events"] == [2, 3, 4]
        assert not held.done()
        assert (await desk.events(2))["events"] == [3, 4, 5]
        assert await held == "OK"

    desk(story)


def test_an_agent_is_not_held_back_for_ever(desk, monkeypatch):
    monkeypatch.setattr(run_requests, "MAX_BEHIND", 1)

    async def story(desk):
        await desk.running()
        assert await desk.tell([1, 2], timeout_s=0.01) == "OK"
        held = await waits(desk.tell([3], timeout_s=LONG_S))
        await desk.end()
        assert await held == "gone"

    desk(story)


def test_a_dask_worker_that_leaves_is_told_and_its_agent_is_gone(desk):
    async def story(desk):
        await desk.running()
        command = await waits(desk.next(timeout_s=LONG_S))
        event = await waits(desk.events(0, timeout_s=LONG_S))
        del desk.scheduler.workers["a"]
        desk.requests.worker_left("a")
        assert (await command)["status"] == "gone"
        (told,) = (await event)["events"]
        assert told == worker_lost("a")
        assert await desk.tell([{"kind": "ended"}]) == "gone"
        assert len((await desk.events(0))["events"]) == 1, "it is not listened to any more"

    desk(story)


def test_an_agent_may_tell_how_its_roles_ended_when_its_dask_worker_leaves_in_order(desk, monkeypatch):
    monkeypatch.setattr(run_requests, "LAST_WORDS_S", 0.05)

    async def story(desk):
        await desk.running(in_place=True)
        command = await waits(desk.next(timeout_s=LONG_S))
        desk.requests.worker_changed("a", "closing_gracefully")
        del desk.scheduler.workers["a"]
        desk.requests.worker_left("a")
        assert not command.done()
        assert await desk.tell([{"kind": "exited"}]) == "OK"
        assert (await desk.events(0))["events"] == [{"kind": "exited"}]
        assert (await command)["status"] == "gone"
        assert (await desk.events(1, timeout_s=LONG_S))["events"] == [worker_lost("a")]

    desk(story)


@pytest.mark.parametrize("ends_first", [True, False])
def test_an_agent_that_has_told_all_is_not_waited_for(desk, ends_first):
    async def story(desk):
        await desk.running(in_place=True)
        desk.requests.worker_changed("a", "closing")
        if ends_first:
            assert (await desk.requests.train_run_agent_ends(run="r1", agent="g"))["status"] == "OK"
        del desk.scheduler.workers["a"]
        desk.requests.worker_left("a")
        if not ends_first:
            assert (await desk.events(0))["events"] == []
            assert (await desk.requests.train_run_agent_ends(run="r1", agent="g"))["status"] == "OK"
        assert (await desk.events(0))["events"] == [worker_lost("a")]
        assert (await desk.requests.train_run_agent_ends(run="r1", agent="g"))["status"] == "gone"

    desk(story)


@pytest.mark.parametrize(("status", "in_place"), [("running", True), ("closing", False)])
def test_others_are_not_heard_any_more(desk, status, in_place):
    async def story(desk):
        await desk.running(in_place=in_place)
        desk.requests.worker_changed("a", status)
        del desk.scheduler.workers["a"]
        desk.requests.worker_left("a")
        assert (await desk.events(0))["events"] == [worker_lost("a")]

    desk(story)


def test_a_run_hears_of_the_dask_workers_that_could_carry_its_roles(desk):
    async def story(desk):
        assert await desk.room(run="") == {"status": "OK", "count": 2}
        await desk.running(follows=True)
        assert await desk.room() == {"status": "OK", "count": 2}
        asked = await waits(desk.room(2, timeout_s=LONG_S))
        desk.scheduler.add("c", 1)
        desk.requests.worker_came()
        assert (await asked)["count"] == 3
        asked = await waits(desk.room(3, timeout_s=LONG_S))
        desk.scheduler.workers["b"].status.name = "closing_gracefully"
        desk.requests.worker_changed("b", "closing_gracefully")
        assert (await asked)["count"] == 2
        assert (await desk.room(2, timeout_s=0.01))["count"] == 2
        asked = await waits(desk.room(2, timeout_s=LONG_S))
        await desk.end()
        assert (await asked)["status"] == "gone"

    desk(story)


# For those who look


def test_last_lines_are_kept_also_when_the_run_is_over(desk):
    async def story(desk):
        await desk.running()
        await desk.end()
        assert await desk.tell([], output=[["worker", 0, 1, 99_999, b"x" * KEPT_OUTPUT + b"the end"]]) == "gone"
        shown = await desk.requests.train_run_show(run="r1", output=True)
        ((role, rank, attempt, end, data),) = shown["output"]
        assert (role, rank, attempt, end, len(data), data[-7:]) == ("worker", 0, 1, 99_999, KEPT_OUTPUT, b"the end")
        assert (await desk.requests.train_run_show(run="r1", output=False))["output"] == []

    desk(story)


def test_runs_are_listed_and_shown(desk):
    async def story(desk):
        await desk.running()
        await desk.requests.train_run_note(run="r1", summary={"phase": "running"})
        await desk.open("r2")
        await desk.end("r2")
        listed = await desk.requests.train_runs()
        assert [run["id"] for run in listed["runs"]] == ["r2", "r1"]
        shown = await desk.requests.train_run_show(run="r1", output=True)
        assert (shown["summary"], shown["info"]) == ({"phase": "running"}, {"roles": {"worker": 2}})
        assert await desk.requests.train_run_show(run="x", output=True) == {"status": "unknown", "runs": ["r2", "r1"]}

    desk(story)


def test_a_word_to_the_driver(desk):
    async def story(desk):
        await desk.running()
        said = await desk.requests.train_run_say(run="r", event=["Stop", {}, None])
        assert (said["status"], said["id"]) == ("OK", "r1")
        (event,) = (await desk.events(0))["events"]
        assert event == ["Stop", {}, None]
        await desk.end()
        assert (await desk.requests.train_run_say(run="r1", event=[]))["ended"]
        assert await desk.requests.train_run_say(run="x", event=[]) == {"status": "unknown", "runs": ["r1"]}

    desk(story)


def test_where_results_lie(desk):
    async def story(desk):
        worker = desk.scheduler.workers["a"]
        desk.scheduler.tasks = {
            "there": SimpleNamespace(who_has=[worker], state="memory"),
            "coming": SimpleNamespace(who_has=[], state="processing"),
            "failed": SimpleNamespace(who_has=[], state="erred"),
        }
        answer = await desk.requests.train_run_who_has(keys=["there", "coming", "failed", "unknown"])
        assert answer["where"] == [["there", ["a"]], ["coming", []], ["failed", []]]
        assert answer["lost"] == ["failed", "unknown"]

    desk(story)


def test_who_waits_for_results_is_answered_when_they_are_there_or_lost_or_gone(desk):
    async def story(desk):
        tasks, results = desk.scheduler.tasks, desk.requests.results
        tasks["x"] = task = SimpleNamespace(who_has=[], state="processing")

        async def answered(change, **asked):
            """What is answered after the change; nothing before, nor after a change of something else."""
            asking = asyncio.ensure_future(desk.requests.train_run_who_has(keys=["x"], timeout_s=20.0, **asked))
            for key in ("another", "x"):
                await asyncio.sleep(0)
                results.changed(key)
            await asyncio.sleep(0)
            assert not asking.done()
            change()
            results.changed("x")
            answer = await asyncio.wait_for(asking, 60)
            assert not results._awaited
            return answer["where"], answer["lost"]

        assert await answered(lambda: task.who_has.append(desk.scheduler.workers["a"])) == ([["x", ["a"]]], [])
        assert await answered(task.who_has.clear, some=False) == ([["x", []]], [])
        assert await answered(tasks.clear) == ([], ["x"])
        tasks["x"] = task
        told = await desk.requests.train_run_who_has(keys=["x"], timeout_s=0.01)
        assert (told["where"], results._awaited) == ([["x", []]], {})

    desk(story)


# Those of whom nothing is heard


def test_a_client_that_is_silent_loses_its_run_and_what_is_computed_for_it(desk, monkeypatch):
    monkeypatch.setattr(run_requests, "LEASE_LOOK_S", 0.01)

    async def story(desk):
        desk.lease_s = 0.05
        await desk.running()
        answer = await desk.next(timeout_s=LONG_S)
        assert answer == {"status": "gone"}, "its agents end"
        assert desk.scheduler.released == {"me": ["part-1"]}
        assert desk.scheduler.locked == {}
        assert (await desk.events(0))["status"] == "gone"
        record = await desk.requests.train_run_show(run="r1", output=False)
        outcome = "nothing was heard of its client for 0.05 s (train.client.timeout)"
        assert record["summary"] == {"phase": "over", "outcome": outcome}
        await desk.requests._watching
        desk.lease_s = 300.0
        await desk.open("r2")
        assert not desk.requests._watching.done(), "the next one is watched, too"
        await desk.end("r2")

    desk(story)


def test_a_client_that_asks_keeps_its_run(desk, monkeypatch):
    monkeypatch.setattr(run_requests, "LEASE_LOOK_S", 0.01)

    async def story(desk):
        desk.lease_s = 0.2
        await desk.running()
        run = desk.runs.by_id["r1"]
        for _ in range(10):
            while run.silent_s < 0.1:
                await asyncio.sleep(0)
            assert (await desk.events(0))["status"] == "OK"

    desk(story)


def test_a_dask_worker_of_which_nobody_hears_is_taken_out(desk):
    async def story(desk):
        desk.scheduler.workers["b"].last_seen -= 61.0
        answer = await desk.requests.train_run_silent(addresses=["a", "b", "gone"], silent_s=60.0)
        assert answer == {"status": "OK", "removed": ["b"]}
        assert list(desk.scheduler.workers) == ["a"]

    desk(story)


@pytest.mark.parametrize("there", [True, False])
def test_the_first_dask_worker_is_waited_for(there):
    async def run() -> None:
        scheduler = SimpleNamespace(workers={"tcp://w": object()} if there else {}, handlers={"adaptive_target": len})
        requests = RunRequests(scheduler)
        requests.placement_queue.serve = lambda: None
        asked = asyncio.create_task(requests.train_workers_came(timeout_s=LONG_S))
        assert (await requests.train_workers_came(timeout_s=0.0))["some"] is there
        if not there:
            scheduler.workers["tcp://w"] = object()
            requests.worker_came()
        assert (await asyncio.wait_for(asked, LONG_S / 2)) == {"status": "OK", "some": True}

    asyncio.run(run())
