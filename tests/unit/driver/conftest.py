"""A driver whose scheduler is the test's: it gives room, forwards letters, and tells what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.data.parcel import Parcel
from dask_train.driver import loop as loop_module
from dask_train.driver.job import Job
from dask_train.driver.loop import Driver
from dask_train.driver.settings import RunSettings
from dask_train.frameworks.registry import find_framework
from dask_train.process.messages import from_plain, to_plain
from dask_train.run import events
from dask_train.run.messages import Ended, Exited, Go, Message, Ready, RoleProcess, Started, StartProcess
from dask_train.run.state import RolePhase, RunPlan

TEST_S = 30.0  # how long anything may take here


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**given))
    return True


class Data:
    """The run's data: none; keeps who has left."""

    def __init__(self) -> None:
        self.by_role: dict[str, Any] = {}
        self.have_left: list[tuple[str, int]] = []
        self.cancelled = False

    def num_rows(self) -> dict[tuple[str, int], int]:
        return {}

    def own_keys(self) -> list[str]:
        return ["a-partition"]

    def left(self, role: str, rank: int) -> None:
        self.have_left.append((role, rank))

    async def described(self, progressed: Callable[[], None]) -> None:
        progressed()

    async def cancel(self) -> None:
        self.cancelled = True


class Shield:
    """Whether it is up."""

    def __init__(self, _: Any) -> None:
        self.is_up = False

    async def up(self) -> None:
        self.is_up = True

    async def down(self) -> None:
        self.is_up = False


class Scheduler:
    """Answers a driver as the scheduler's plug-in does, and is its client at the same time.

    Attributes
    ----------
    asked
        What was asked, in order.
    answers
        What it answers in place of what it usually does, by question: a dict, or an exception.
    letters
        What agents were sent, in order: the Dask worker, the message, and the role process that it is for.
    agents
        The tasks that the agents are, by Dask worker.
    briefs
        What these were given, by Dask worker.
    reach_me
        What Dask workers answer.
    """

    id = "me"
    asynchronous = False
    poll_s = 0.5

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.letters: list[tuple[str, Message, RoleProcess | None]] = []
        self.agents: dict[str, asyncio.Future[None]] = {}
        self.briefs: dict[str, Any] = {}
        self.reach_me: dict[str, Any] = {}
        self.cancelled: list[asyncio.Future[None]] = []
        self.put_aside: list[tuple[str, str]] = []
        self.loop = SimpleNamespace(add_callback=lambda function, *args: function(*args))
        self.dask_end = SimpleNamespace(submit=self._submit)
        self._address_of: dict[str, str] = {}
        self._told: list[Any] = []
        self._changed = asyncio.Event()

    def _changes(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, met: Callable[[], Any]) -> Any:
        """The first true value of ``met()``; looked at after everything that was asked, and each turn of the run."""
        async with asyncio.timeout(TEST_S):
            while not (value := met()):
                await asyncio.wait_for(self._changed.wait(), TEST_S)
        return value

    def tells(self, message: Message, role: str = "", rank: int = 0, attempt: int = 0) -> None:
        """An agent, or the scheduler itself, tells the driver something."""
        self._told.append(to_plain(message, RoleProcess(role, rank, attempt) if role else None))
        self._changes()

    def sent(self, kind: type[Message]) -> list[tuple[str, Message, RoleProcess | None]]:
        """The letters of one kind."""
        return [letter for letter in self.letters if isinstance(letter[1], kind)]

    def questions(self, handler: str) -> list[dict[str, Any]]:
        """With what it was asked this."""
        return [message for name, message in self.asked if name == handler]

    # The client's side

    async def ask(self, handler: str, **message: Any) -> dict[str, Any]:
        self.asked.append((handler, message))
        self._changes()
        await asyncio.sleep(0)  # as one that comes over a network
        answer = self.answers.get(handler)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return dict(answer)
        return await getattr(self, f"_{handler}", self._well)(**message)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """As with an asynchronous client."""
        return function(*args)

    def spawn(self, function: Callable[[], Any]) -> None:
        """Nothing: the test drives the run."""

    async def on_workers(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.reach_me

    async def cancel(self, futures: list[asyncio.Future[None]]) -> None:
        self.cancelled += futures
        for future in futures:
            future.cancel()

    async def put(self, key: str, value: bytes, *, address: str) -> str:
        self.put_aside.append((key, address))
        return f"future of {len(value)} bytes"

    def _submit(self, *args: Any, workers: list[str], **_: Any) -> asyncio.Future[None]:
        (address,) = workers
        self.agents[address] = asyncio.get_running_loop().create_future()
        self.briefs[address] = args[4]
        self._address_of[args[2]] = address
        return self.agents[address]

    # The plug-in's side

    async def _well(self, **_: Any) -> dict[str, Any]:
        return {"status": "OK"}

    async def _train_run_place(self, roles: list[list[Any]], **_: Any) -> dict[str, Any]:
        places = [[role, rank, "ab"[rank % 2], "host", ""] for role, rank, _ in roles]
        return {"status": "OK", "places": places, "threads": 8}

    async def _train_run_post(self, messages: list[tuple[str, list[Any]]], **_: Any) -> dict[str, Any]:
        for agent, post in messages:
            self.letters += [(self._address_of[agent], *from_plain(plain)) for plain in post]
        self._changes()
        return {"status": "OK"}

    async def _train_run_events(self, since: int, timeout_s: float, **_: Any) -> dict[str, Any]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(self._told) <= since:
                    await self._changed.wait()
        return {"status": "OK", "events": self._told[since:]}

    async def _train_run_end(self, **_: Any) -> dict[str, Any]:
        for agent in self.agents.values():
            if not agent.done():
                agent.set_result(None)
        return {"status": "OK"}

    async def _train_run_computes(self, **_: Any) -> dict[str, Any]:
        return {"computes": False}


class Driven:
    """A driver, its scheduler, and its data; keeps all events."""

    def __init__(self, counts: Mapping[str, int], job: dict[str, Any], plan: dict[str, Any]) -> None:
        roles = {"training": frozenset({"worker"}), "services": frozenset(counts) - {"worker"}}
        job = {"checkpoint": None, "framework": find_framework(None), **job}
        of_run = {each.name for each in fields(RunSettings)} - {"checkpoint"}
        run = RunSettings(**{"gpus": None} | {name: job.pop(name) for name in of_run & set(job)})
        names = dict.fromkeys(counts, "train")
        job = {"functions": dict.fromkeys(counts, Parcel(pickle=b"a function")), **job}
        self.scheduler, self.data = Scheduler(), Data()
        whole = RunPlan(counts=dict(counts), **{"stop_s": 0.2, **roles, **plan})
        self.driver = Driver(self.scheduler, Job(id="run", plan=whole, run=run, names=names, **job), self.data)
        self.events: list[events.Event] = []
        turned = self.driver.history.turned

        def seen(before: Any, event: events.Event, *then: Any) -> None:
            self.events.append(event)
            turned(before, event, *then)
            self.scheduler._changes()

        self.driver.history.turned = seen

    async def running(self) -> None:
        """Let the agents play their part until the users' functions run."""
        keys = self.driver.job.plan.role_keys()
        await self.scheduler.until(lambda: len(self.scheduler.sent(StartProcess)) == len(keys))
        for number, (role, rank) in enumerate(keys):
            self.scheduler.tells(Ready(pid=100 + number, peer=f"h:{number}"), role, rank)
        await self.scheduler.until(lambda: len(self.scheduler.sent(Go)) == len(keys))
        for role, rank in keys:
            self.scheduler.tells(Started(), role, rank)
        roles = self.driver.state.roles
        await self.scheduler.until(lambda: all(self.phase(role, rank) is RolePhase.RUNNING for role, rank in roles))

    def phase(self, role: str, rank: int = 0) -> RolePhase:
        """Where a role is."""
        return self.driver.state.roles[role, rank].phase

    def returns(self, rank: int = 0, result: Any = None) -> None:
        """A worker's function returns, and its process ends."""
        self.scheduler.tells(Ended(result=pickle.dumps(result)), "worker", rank)
        self.scheduler.tells(Exited(cause=""), "worker", rank)


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``async with driven(worker=2) as it``: a driver that drives; it has to be over at the end, with nothing left."""

    async def plugged_in(_: Any) -> None:
        return

    for name in ("ensure_plugin", "ensure_dashboard"):
        monkeypatch.setattr(loop_module, name, plugged_in)
    monkeypatch.setattr(loop_module, "Shield", Shield)

    @contextlib.asynccontextmanager
    async def drives(
        job: dict[str, Any] | None = None, plan: dict[str, Any] | None = None, **counts: int
    ) -> AsyncIterator[Driven]:
        before = asyncio.all_tasks()
        it = Driven(counts or {"worker": 1}, job or {}, plan or {})
        driving = asyncio.ensure_future(it.driver.drive())
        try:
            yield it
            await asyncio.wait_for(driving, TEST_S)
        finally:
            driving.cancel()
        await asyncio.sleep(0)  # tasks that were cancelled last
        assert asyncio.all_tasks() == before
        assert it.driver.over
        assert it.driver.finish is not None
        assert it.data.cancelled
        assert not it.driver._shield.is_up

    return drives
