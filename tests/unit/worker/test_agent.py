"""The agent: which processes it starts and ends, what it tells them, and what it tells of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dask_train.data.parcel import Parcel
from dask_train.data.stream import Stream
from dask_train.errors import DataError, StalledError
from dask_train.process import messages
from dask_train.process.messages import from_plain, to_plain
from dask_train.run.messages import (
    DataFailed,
    DataProgressed,
    Ended,
    Exited,
    Failed,
    Go,
    Load,
    Loaded,
    Message,
    Ready,
    RoleProcess,
    StartProcess,
    Stop,
)
from dask_train.settings.process import Settings
from dask_train.worker import agent as agent_module
from dask_train.worker.agent import Agent
from dask_train.worker.brief import Brief
from dask_train.worker.mail import BUNDLE_S

TEST_S = 20.0


class Child:
    """A role process that is played; ``can_not_start`` is what starting one raises."""

    can_not_start: Exception | None = None
    dies_of_kill = True
    made: ClassVar[list[Child]]

    def __init__(self, role: str, rank: int, attempt: int, *, on_message: Any, on_exit: Any, joins: bool) -> None:
        self.role, self.rank, self.attempt, self.joins = role, rank, attempt, joins
        self.says, self._on_exit = (lambda message: on_message(self, message)), on_exit
        self.done, self.started = asyncio.Event(), asyncio.Event()
        self.told: list[Message] = []
        self.scratch, self.killed, self.paused = "a folder", False, False
        self.output = SimpleNamespace(collect=lambda: None, bytes_since=lambda _start, _size: (3, b"out"))
        self.num_threads = 0
        Child.made.append(self)

    async def start(
        self, run: str, num_threads: int, folder: str, starting: Any, preload: Any, environment: Any
    ) -> None:
        self.environment = environment
        assert (run, folder, starting, preload) == ("run", "folder", "templates start it", None)
        if self.can_not_start is not None:
            self.done.set()
            raise self.can_not_start
        await asyncio.sleep(0)
        self.num_threads = num_threads
        self.started.set()

    def tell(self, message: Message) -> None:
        self.told.append(message)

    def exits(self, cause: str) -> None:
        self._on_exit(self, cause)
        self.done.set()

    def kill(self) -> None:
        self.killed = True
        if self.dies_of_kill and not self.done.is_set():
            self.exits("it was killed.")

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def batches(self) -> list[list[int]]:
        return [[self.attempt]]

    async def picture(self) -> messages.Pictured:
        return messages.Pictured(pid=1, state="running", doing="", for_s=0.0, steps=0, stacks="")


class Mail:
    """Commands that the test gives, and events that it reads."""

    def __init__(self, _peer: Any, run: str, name: str, _on_loop: Any, is_closing: Callable[[], bool]) -> None:
        assert (run, name, is_closing()) == ("run", "agent-1", False)
        self.orders: asyncio.Queue[Any] = asyncio.Queue()
        self.events: list[tuple[Message, RoleProcess | None]] = []
        self.within_s: list[float] = []
        self.num_waiting = 0
        self.output: list[Any] = []
        self.sent_last = False
        self.read_on: Callable[[], None]
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def commands(self) -> AsyncIterator[Any]:
        while (order := await self.orders.get()) is not None:
            yield order

    async def send(self, read_on: Callable[[], None]) -> None:
        self.read_on = read_on
        await self.failure

    def put(self, event: Any, *, within_s: float) -> int:
        self.events.append(from_plain(event))
        self.within_s.append(within_s)
        return self.num_waiting

    def put_output(self, output: Any) -> None:
        self.output.append(output)

    async def finish(self) -> None:
        self.events.append((Stop(reason="all is sent"), None))

    async def send_last_output(self) -> None:
        self.sent_last = True


class Data:
    """The data of the roles: what is asked of it, in order, and how it fails."""

    def __init__(self, *_: Any) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None

    def tell(self, told: messages.DataSetPlaces) -> None:
        self.asked.append(("tell", told.number))

    async def hold(self, number: int, role: str, rank: int, progressed: Callable[[], None]) -> None:
        self.asked.append(("hold", number, role, rank))
        progressed()
        if self.fails is not None:
            raise self.fails

    async def rows(self, *wanted: Any) -> tuple[str, ...]:
        if self.fails is not None:
            raise self.fails
        return wanted

    async def open_group(self, role: str, rank: int, computed: Any, progressed: Callable[[], None]) -> str:
        self.asked.append(("group", role, rank, computed.group))
        progressed()
        return f"group {computed.group} of {role} {rank}"

    def mapped(self, number: int, role: str, rank: int) -> str:
        return f"data set {number} of {role} {rank}"

    def leave(self, stream: Any, role: str, rank: int) -> None:
        self.asked.append(("leave", stream, role, rank))

    def gone(self, role: str, rank: int) -> None:
        self.asked.append(("gone", role, rank))

    async def close(self) -> None:
        self.asked.append(("close",))


class Served:
    """An agent that serves, and its mail and data."""

    def __init__(self, **settings: Any) -> None:
        brief = Brief(
            run="run",
            counts={"worker": 2},
            training=("worker",),
            functions={"worker": Parcel(pickle=b"a function")},
            framework=b"an adapter",
            checkpoint=None,
            settings=Settings(changed={"torch": {"default_dtype": "float64"}}),
            preload=None,
            progress_every_s=1.5,
            data_timeout_s=5.0,
            stop_s=0.2,
            **settings,
        )
        status = SimpleNamespace(name="running")
        self.worker: Any = SimpleNamespace(
            status=status, address="tcp://1.2.3.4:5", ip="1.2.3.4", local_directory="folder", loop=None
        )
        self.agent = Agent(self.worker, brief, "agent-1")
        self.mail: Any = self.agent._mail
        self.data: Any = self.agent._data

    def orders(self, message: Message, rank: int = 0, attempt: int = 0) -> None:
        of = None if isinstance(message, messages.DataSetPlaces) else RoleProcess("worker", rank, attempt)
        self.mail.orders.put_nowait(to_plain(message, of))

    async def until(self, met: Callable[[], Any]) -> Any:
        async with asyncio.timeout(TEST_S):
            while not (value := met()):
                await asyncio.sleep(0)
        return value

    async def child(self, rank: int = 0, attempt: int = 0, roles_on_host: int = 1, *, joins: bool = False) -> Child:
        """A role process that has been started."""
        self.orders(StartProcess(roles_on_host=roles_on_host, joins=joins), rank, attempt)
        of = ("worker", rank, attempt)
        found = await self.until(lambda: [c for c in Child.made if (c.role, c.rank, c.attempt) == of])
        await self.until(lambda: found[0].told or found[0].done.is_set())
        return found[0]

    def told(self, *kinds: type[Message]) -> list[Message]:
        """What the driver was told."""
        return [message for message, _ in self.mail.events if not kinds or isinstance(message, kinds)]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Served], Coroutine[Any, Any, None]]], Served]:
    """Runs a story with an agent, tells that the run is over, and waits for its end."""
    templates = SimpleNamespace(of=lambda _: SimpleNamespace(start="templates start it"))
    for name, stand_in in {"RoleChild": Child, "Mail": Mail, "RoleData": Data, "TemplateProcesses": templates}.items():
        monkeypatch.setattr(agent_module, name, stand_in)
    monkeypatch.setattr(agent_module, "Peer", lambda *_: None)
    monkeypatch.setattr(agent_module, "CPU_COUNT", 8)
    monkeypatch.setattr(Child, "made", [], raising=False)

    @asynccontextmanager
    async def serving(**settings: Any) -> AsyncIterator[Served]:
        it = Served(**settings)
        running = asyncio.ensure_future(it.agent.run())
        try:
            await asyncio.sleep(0)
            yield it
            it.mail.orders.put_nowait(None)
            await asyncio.wait_for(running, TEST_S)
        finally:
            running.cancel()

    def run(story: Callable[[Served], Coroutine[Any, Any, None]], **settings: Any) -> Served:
        async def whole() -> Served:
            async with serving(**settings) as it:
                await story(it)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert it.data.asked[-1] == ("close",)
            assert it.mail.sent_last
            return it

        return asyncio.run(whole())

    return run


def test_a_process_is_told_who_it_is_and_what_to_enter(play):
    async def story(it):
        child = await it.child(rank=1, attempt=2, roles_on_host=3)
        (begin,) = child.told
        assert (begin.me.role, begin.me.rank, begin.me.host, begin.me.counts) == ("worker", 1, "1.2.3.4", {"worker": 2})
        assert (begin.attempt, begin.function, begin.framework) == (2, Parcel(pickle=b"a function"), b"an adapter")
        assert begin.settings.changed == {"torch": {"default_dtype": "float64"}}
        assert child.num_threads == begin.me.num_threads == 2, "its share of 8 cores"
        it.orders(Load(), 1, 2)
        await it.until(lambda: it.told(Loaded))
        it.orders(Go(peers={"worker": ["a", "b"]}, timeout_s=1.0), 1, 2)
        enter = await it.until(lambda: child.told[1:])
        assert (enter[0].data, enter[0].peers, enter[0].data_timeout_s) == (
            "data set 0 of worker 1",
            {"worker": ["a", "b"]},
            5,
        )

    it = play(story)
    assert [type(message) for message in it.told()][:2] == [DataProgressed, Loaded]
    assert Child.made[0].killed, "the run was over"


def test_a_command_for_a_process_that_has_been_replaced_is_dropped(play):
    async def story(it):
        first = await it.child(attempt=0)
        second = await it.child(attempt=1)
        assert first.killed
        it.orders(Stop(reason="late"), attempt=0)
        it.orders(Stop(reason="now"), attempt=1)
        await it.until(lambda: len(second.told) == 2)
        assert second.told[1] == Stop(reason="now")
        assert len(first.told) == 1
        before = len(it.told())
        first.says(Ended(result=b"of the first"))
        assert len(it.told()) == before
        second.says(Ended(result=b"of the second"))

    it = play(story)
    assert [message.result for message in it.told(Ended)] == [b"of the second"]


def test_a_process_that_can_not_be_started_is_told_of(play, monkeypatch):
    monkeypatch.setattr(Child, "can_not_start", OSError(12, "Cannot allocate memory"))

    async def story(it):
        it.orders(StartProcess(roles_on_host=1))
        await it.until(lambda: it.told(Failed))

    it = play(story)
    (failed,) = it.told(Failed)
    assert failed.launching
    assert failed.error == "[Errno 12] Cannot allocate memory."


def test_before_its_last_word_come_a_roles_account_and_output(play):
    async def story(it):
        child = await it.child()
        child.says(Ended(result=b""))
        child.exits("it ended.")

    it = play(story)
    kinds = [type(message).__name__ for message in it.told()]
    assert kinds == ["Accounted", "Ended", "Accounted", "Exited"]
    assert it.mail.output[0] == ("worker", 0, 0, 3, b"out")
    assert ("gone", "worker", 0) in it.data.asked


def test_a_process_that_is_replaced_before_its_end_is_accounted_for(play, monkeypatch):
    monkeypatch.setattr(Child, "dies_of_kill", False)

    async def story(it):
        first = await it.child(attempt=0)
        second = await it.child(attempt=1)
        assert first.killed
        first.exits("it was killed.")
        second.exits("it was killed.")

    it = play(story)
    assert [message.account for message in it.told(messages.Accounted)] == [[[0]], [[1]]]
    assert len(it.told(Exited)) == 1, "whose loss is known"


def closes(it: Served) -> None:
    it.worker.status.name = "closing_gracefully"
    it.agent.leave_soon()


def test_where_the_dask_worker_leaves_roles_end_and_are_told_of_before_the_agent_ends(play):
    async def story(it):
        await it.child(0)
        (await it.child(1)).exits("it ended.")
        closes(it)
        await it.until(it.agent._over.is_set)
        assert it.agent.has_told
        assert it.told()[-1] == Stop(reason="all is sent")

    it = play(story, leave_within_s=0.0)
    assert it.told(Exited) == [
        Exited(cause="it ended."),
        Exited(cause="its Dask worker leaves the cluster.", leaves=True),
    ]


def test_roles_may_end_by_themselves_for_a_while(play):
    async def story(it):
        child = await it.child()
        closes(it)
        await it.until(it.agent._is_leaving.is_set)
        child.says(Ended(result=b""))
        child.exits("it ended.")
        await it.until(it.agent._over.is_set)
        assert it.agent.has_told

    it = play(story, leave_within_s=TEST_S)
    assert len(it.told(Ended)) == 1


def test_each_attempt_gets_the_same_memory_which_ends_with_the_agent(play):
    async def story(it):
        first, again, other = await it.child(), await it.child(attempt=1), await it.child(rank=1)
        told = [each.told[0].data for each in (first, again, other)]
        assert told == [it.agent._kept] * 3
        it.kept = it.agent._kept.descriptors
        assert all(map(os.fstat, it.kept))

    for descriptor in play(story, keeps_state=True).kept:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_roles_that_no_one_replaces_in_place_are_not_told_of(play):
    async def story(it):
        await it.child()
        closes(it)
        await it.until(it.agent._over.is_set)
        assert it.told() == []

    assert not play(story).agent.has_told


def test_a_process_that_does_not_end_is_not_waited_for_long(play, monkeypatch):
    monkeypatch.setattr(agent_module, "LAST_WORDS_S", 0.01)
    monkeypatch.setattr(Child, "dies_of_kill", False)

    async def story(it):
        await it.child()
        closes(it)
        await it.until(it.agent._over.is_set)

    assert not play(story, leave_within_s=0.0).agent.has_told


def test_reports_wait_for_company_and_nothing_else_does(play):
    async def story(it):
        child = await it.child()
        child.says(messages.Reported(scores=[{}]))
        child.says(messages.Progress(steps=1, doing="", moved=True, awaits_client=False))
        child.says(Ready(pid=1, peer=""))
        assert it.mail.within_s == [BUNDLE_S, 1.5, 0.0]

    play(story)


def test_with_too_much_on_its_way_processes_are_not_read(play):
    async def story(it):
        child, ended = await it.child(0), await it.child(1)
        ended.exits("it ended.")
        it.mail.num_waiting = agent_module.MAX_WAITING
        child.says(messages.Reported(scores=[{}]))
        assert not child.paused
        it.mail.num_waiting += 1
        child.says(messages.Reported(scores=[{}]))
        assert child.paused
        assert ended.paused
        it.mail.read_on()
        assert not child.paused
        assert ended.paused, "there is nothing to read"

    play(story)


@pytest.mark.parametrize(
    ("error", "ends_run", "stalled"),
    [(DataError("It is lost."), True, False), (StalledError("Nothing came."), False, True)],
)
def test_rows_that_can_not_be_had_are_an_answer_and_may_end_the_run(play, error, ends_run, stalled):
    async def story(it):
        child = await it.child()
        it.data.fails = error
        child.says(messages.RowsWanted(question=7, stream=None, partition=[0], row=[1]))
        await it.until(lambda: len(child.told) == 2)
        answer = child.told[1]
        assert (answer.question, answer.error, answer.stalled) == (7, str(error), stalled)

    it = play(story)
    assert bool(it.told(DataFailed)) is ends_run


def test_rows_that_a_process_which_has_ended_asked_for_do_not_end_the_run(play):
    async def story(it):
        child, asked = await it.child(), asyncio.Event()

        async def rows(*_):
            asked.set()
            await child.done.wait()
            raise DataError("It is lost.")

        it.data.rows = rows
        child.says(messages.RowsWanted(question=7, stream=None, partition=[0], row=[1]))
        await asked.wait()
        child.exits("killed by signal 9.")
        await it.until(lambda: len(child.told) == 2)

    assert not play(story).told(DataFailed)


def test_rows_of_other_hosts_are_brought(play):
    async def story(it):
        child = await it.child(1)
        child.says(messages.RowsWanted(question=7, stream="stream", partition=[0], row=[1]))
        await it.until(lambda: len(child.told) == 2)
        assert child.told[1].columns == ("stream", "worker", 1, [0], [1])

    play(story)


def test_a_data_set_that_a_process_asks_for_is_opened_unless_it_is_not_there_or_to_come(play):
    async def story(it):
        child = await it.child()
        it.orders(messages.DataSetFound(question=1, name="x", to_come=True))
        it.orders(messages.DataSetFound(question=1, name="x", error="There is no x."))
        await it.until(lambda: len(child.told) == 3)
        assert [(answer.to_come, answer.error) for answer in child.told[1:]] == [(True, ""), (False, "There is no x.")]
        assert it.data.asked == []
        it.orders(messages.DataSetFound(question=2, name="y", number=3))
        await it.until(lambda: len(child.told) == 5)
        assert child.told[3] == messages.Answer(question=2, to_come=True), "it waits while partitions are copied"
        answer = child.told[4]
        assert (answer.question, answer.number, answer.data) == (2, 3, "data set 3 of worker 0")
        assert it.told(DataProgressed) == [DataProgressed()]

    play(story)


def test_data_of_a_role_that_can_not_be_had_fail_the_run(play):
    async def story(it):
        await it.child()
        it.data.fails = DataError("It is lost.")
        it.orders(Load())
        await it.until(lambda: it.told(DataFailed))
        assert not it.told(Loaded)

    play(story)


@pytest.mark.parametrize("error", [DataError("It is lost."), StalledError("3 of 3 did not come.")])
def test_one_that_joins_and_whose_data_can_not_be_had_is_ended_and_the_others_train_on(play, error):
    async def story(it):
        child = await it.child(rank=2, joins=True)
        assert child.told[0].joins
        it.data.fails = error
        it.orders(Load(), 2)
        await it.until(lambda: child.killed)

    it = play(story)
    assert it.told(DataFailed, Failed, Loaded) == [Failed(error=str(error), launching=True)]


def test_an_agent_ends_with_its_dask_worker(play, monkeypatch):
    monkeypatch.setattr(agent_module, "LOOK_S", 0.01)

    async def story(it):
        child = await it.child()
        it.worker.status.name = "closing"
        await it.until(lambda: child.killed)

    play(story)


def test_processes_that_do_not_die_keep_nobody(play, monkeypatch):
    monkeypatch.setattr(Child, "dies_of_kill", False)

    async def story(it):
        await it.child()

    play(story)


def test_what_fails_within_the_agent_ends_it_with_that(play):
    async def story(it):
        await it.child()
        it.mail.failure.set_exception(ZeroDivisionError("a bug of ours"))

    with pytest.raises(ZeroDivisionError, match="a bug of ours"):
        play(story)
    assert Child.made[0].killed


def test_nothing_is_opened_for_a_process_that_is_gone(play):
    """What it has asked for is answered after it was killed; nobody would let go of it before the run is over."""

    async def story(it):
        gone, other = await it.child(0), await it.child(1)
        gone.exits("it was killed.")
        for rank in (0, 1):
            it.orders(
                messages.GroupComputed(question=1, stream=Stream(0, 0, 0, False, 0), group=4, needed_from=4), rank
            )
        await it.until(lambda: len(other.told) == 3)
        assert (other.told[1].question, other.told[1].to_come) == (1, True)
        assert (other.told[2].question, other.told[2].data) == (1, "group 4 of worker 1")
        assert [asked[1:] for asked in it.data.asked if asked[0] == "group"] == [("worker", 1, 4)]
        assert len(gone.told) == 1

    play(story)


def test_a_start_that_fails_within_the_agent_ends_it_with_that(play, monkeypatch):
    monkeypatch.setattr(Child, "can_not_start", ZeroDivisionError("a bug of ours"))

    async def story(it):
        it.orders(StartProcess(roles_on_host=1))
        await it.until(it.agent._over.is_set)

    with pytest.raises(ZeroDivisionError, match="a bug of ours"):
        play(story)
