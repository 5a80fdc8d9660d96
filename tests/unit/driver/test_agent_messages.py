"""What a driver is told becomes events of its run."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.data.stream import Stream
from dask_train.driver.agent_messages import AgentMessages
from dask_train.driver.clock import RunClock
from dask_train.process.messages import (
    Accounted,
    DataSetWanted,
    GroupWanted,
    Progress,
    Reported,
    Value,
    from_plain,
    to_plain,
)
from dask_train.run import events, messages
from dask_train.run.messages import Message, RoleProcess
from dask_train.run.state import ALIVE, RolePhase
from dask_train.run.transitions import ACTIONS, ROLE_ACTIONS
from dask_train.scheduler.runs import worker_lost


class RunContext:
    """Keeps the events; its run has one worker, in attempt 1."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(roles={("worker", 0): SimpleNamespace(attempt=1, awaits_client=False)})
        self.state.roles["worker", 0].phase = RolePhase.RUNNING
        self.history = SimpleNamespace(moved=lambda _key, message, _time, _interval: getattr(message, "moved", True))
        self.now = RunClock()
        self.events: list[events.Event] = []
        self.happened = lambda what, of=None: self.events.append(events.Event(self.now(), what, of))
        self.lost: list[str] = []
        self.agent_messages = AgentMessages(self, SimpleNamespace(worker_lost=self.lost.append))

    def tell(self, message: Message, attempt: int = 1) -> list[str]:
        """The kinds of the events that a message leads to, which has come through the scheduler."""
        before = len(self.events)
        self.agent_messages.handle(*from_plain(to_plain(message, RoleProcess("worker", 0, attempt))))
        return [type(event.what).__name__ for event in self.events[before:]]


def progress(**more: Any) -> Progress:
    return Progress(**{"steps": 1, "doing": "w", "moved": True, "awaits_client": False, **more})


def test_only_what_moves_is_progress():
    context = RunContext()
    assert context.tell(progress()) == ["Progressed"]
    assert context.tell(progress(moved=False)) == []
    assert context.tell(Reported(scores=[{}])) == ["Progressed"]


def test_a_wait_for_the_client_is_told_when_it_begins_and_ends_though_the_run_lags_behind():
    context = RunContext()
    waits = progress(moved=False, awaits_client=True)
    assert context.tell(waits) == ["AwaitsClient"]
    assert context.tell(waits) == []
    assert context.tell(Value(value=b"")) == ["Progressed"]
    assert context.tell(progress(moved=False)) == ["AwaitsClient"]
    waits_then = [event.what for event in context.events if isinstance(event.what, events.AwaitsClient)]
    assert [each.awaits for each in waits_then] == [True, False]
    context.state.roles["worker", 0].attempt = 2
    assert context.tell(waits) == [], "a process that has been replaced"
    assert context.tell(waits, attempt=2) == ["AwaitsClient"]


def test_times_are_those_of_this_clock():
    context = RunContext()
    context.tell(progress())
    assert abs(context.events[0].time - time.time()) < 60, "and not of the host that told"


class Awaited(RunContext):
    """Its data comes when the event is set; Dask computes meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.answers, self.state.plan = asyncio.Event(), [], SimpleNamespace(progress_s=0.004)
        self.peer = SimpleNamespace(ask=self.ask)
        self.data = SimpleNamespace(open=self.open, own_keys=lambda: ["p"], by_role={"worker": self}, data_set=str)
        self.data.num_skipped = dict
        self.history.files_skipped = lambda _: None
        self.own_keys = self.data.own_keys
        answered = SimpleNamespace(answer=lambda _, answer: self.answers.append(answer), tell_of=lambda *_: None)
        self.agent_messages = AgentMessages(self, answered)
        self.spawned: list[Any] = []
        self.spawn = self.spawned.append

    async def ask(self, _handler: str, *, keys: list[Any]) -> dict[str, Any]:
        assert keys == ["p"]
        if len(self.answers) > 1:
            self.came.set()
        return {"computes": True}

    async def open(self, *_: Any) -> int:
        await asyncio.wait_for(self.came.wait(), 60)
        return 1

    async def group(self, *_: Any) -> tuple[bytes, list[Any]]:
        await self.open()
        return b"schema", []


@pytest.mark.parametrize(
    "wanted",
    [
        GroupWanted(question=3, stream=Stream(0, 0, 0, False, 0), group=1, needed_from=0),
        DataSetWanted(question=3, name="mine"),
    ],
)
def test_a_wait_for_what_dask_computes_is_progress(wanted):
    async def story() -> None:
        context = Awaited()
        context.tell(wanted)
        (waiting,) = context.spawned
        await waiting
        *to_come, last = context.answers
        assert len(to_come) >= 2
        assert all(answer.to_come and answer.question == 3 for answer in to_come)
        assert not last.to_come
        assert not last.error
        assert [type(event.what) for event in context.events] == [events.Progressed] * len(to_come)

    asyncio.run(story())


def test_a_data_set_for_a_role_that_was_replaced_meanwhile_is_told_to_nobody():
    async def story() -> None:
        context = Awaited()
        context.tell(DataSetWanted(question=3, name="mine"))
        context.came.set()
        context.state.roles["worker", 0].attempt = 2
        await context.spawned[0]
        assert all(answer.to_come for answer in context.answers)

    asyncio.run(story())


def test_the_account_of_an_attempt_that_was_replaced_is_kept():
    context, kept = RunContext(), []
    context.history.record = lambda of, message: kept.append((of.attempt, message))
    for attempt in (0, 1):
        context.tell(Accounted(account=[[attempt]]), attempt)
    assert kept == [(attempt, Accounted(account=[[attempt]])) for attempt in (0, 1)]
    assert context.tell(messages.Exited(cause="it was killed."), attempt=0) == []


@pytest.mark.parametrize("phase", RolePhase)
def test_data_that_a_role_which_has_ended_could_not_have_do_not_end_the_run(phase):
    context = RunContext()
    failed = messages.DataFailed(error="Partition 3 is lost.")
    assert context.tell(failed, attempt=0) == []
    context.state.roles["worker", 0].phase = phase
    reads = phase in ALIVE and phase is not RolePhase.KILLED
    assert context.tell(failed) == ["DataFailed"] * reads


def test_what_the_scheduler_itself_tells_is_understood():
    context = RunContext()
    context.agent_messages.handle(*from_plain(worker_lost("tcp://a:1")))
    assert context.lost == ["tcp://a:1"]
    assert [event.what for event in context.events] == [messages.WorkerLost(address="tcp://a:1")]


@pytest.mark.parametrize("kind", [kind for kind in (*ACTIONS, *ROLE_ACTIONS) if issubclass(kind, Message)])
def test_a_message_that_changes_the_course_is_an_event_as_it_is(kind):
    """But for the result, which no event log keeps."""
    context, of = RunContext(), RoleProcess("worker", 0, 1)
    context.history.results, context.history.raised = {}, {}
    made = ((each.name, getattr(builtins, str(each.type), None)) for each in dataclasses.fields(kind))
    message = kind(**{name: make() for name, make in made if make is not None})  # others have defaults
    context.agent_messages.handle(message, of)
    (event,) = context.events
    assert event.what == message
    assert event.of == (of if kind in ROLE_ACTIONS else None)
    assert of.key in context.history.results if kind is messages.Ended else not context.history.results


def test_an_event_has_no_result():
    context, of = RunContext(), RoleProcess("worker", 0, 1)
    context.history.results = {}
    context.agent_messages.handle(messages.Ended(result=b"weights", left=((0, 7),)), of)
    assert context.events[0].what == messages.Ended()
    assert context.history.results == {of.key: messages.Ended(result=b"weights", left=((0, 7),))}
