"""A run that is driven by hand: events in, commands out as short texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dask_train.run import commands, events, messages
from dask_train.run.state import Phase, Role, RolePhase, RunPlan
from dask_train.run.transitions import begin, step

Key = tuple[str, int]


def told(command: commands.Command) -> str:
    """``StartProcess worker/0#1@a`` is the start of worker 0, attempt 1, on a."""
    if isinstance(command, commands.Tell):
        to = command.to
        return f"{type(command.message).__name__} {to.role}/{to.rank}#{to.attempt}@{command.address}"
    name = type(command).__name__
    if isinstance(command, commands.Finish):
        return f"{name} {command.verdict}"
    return " ".join([name, *(f"{role}/{rank}" for role, rank in command.roles)])


class Course:
    """One run; ``time`` goes on by 0.1 s with each event, and a role's Dask worker is ``a`` for the first, ``b``..."""

    def __init__(self, **settings: Any) -> None:
        counts = settings.pop("counts", {"worker": 2})
        services = frozenset({"ps"} & set(counts))
        training = frozenset({"chief", "worker"} & set(counts))
        defaults = {"training": training, "services": services, "replaceable": frozenset(counts) - {"chief"}}
        self.plan = RunPlan(counts=counts, **(defaults | settings))
        self.time = 0.0
        self.log: list[tuple[events.Event, tuple[commands.Command, ...]]] = []
        self.state, todo = begin(self.plan, self.time)
        self.first = self.state
        self.begun = [told(command) for command in todo]
        self.finishes: list[commands.Finish] = []

    def __getitem__(self, key: str) -> Role:
        role, rank = key.split("/")
        return self.state.roles[role, int(rank)]

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def finish(self) -> commands.Finish:
        (finish,) = self.finishes
        return finish

    @property
    def phases(self) -> dict[str, RolePhase]:
        return {f"{role}/{rank}": entry.phase for (role, rank), entry in self.state.roles.items()}

    def takes(self, event: events.Event) -> list[str]:
        before = self.state
        self.state, todo = step(before, event)
        self.log.append((event, todo))
        self.finishes += [command for command in todo if isinstance(command, commands.Finish)]
        return [told(command) for command in todo]

    def happens(self, kind: type[Any], key: str = "", *, after: float = 0.1, **more: Any) -> list[str]:
        """An event, of ``role/rank`` in its present attempt or the one that is given; what is to be done then."""
        self.time = round(self.time + after, 3)
        of = None
        if key:
            role, rank = key.split("/")
            of = messages.RoleProcess(role, int(rank), more.pop("attempt", self[key].attempt))
        if kind is messages.Ready:
            more = {"pid": 1, "peer": "", **more}
        return self.takes(events.Event(self.time, kind(**more), of))

    def tick(self, after: float = 0.25) -> list[str]:
        return self.happens(events.Ticked, after=after)

    def placed(self, *keys: str, on: str = "") -> list[str]:
        """Room is found for these roles, or all; on ``a``, ``b``... or all on one Dask worker."""
        names = [f"{role}/{rank}" for role, rank in self.plan.role_keys()]
        places = {name: on or "abcdefgh"[at] for at, name in enumerate(names) if not keys or name in keys}
        return self.happens(events.Placed, places=places)

    def up(self, *keys: str) -> list[str]:
        """These roles, or all, get ready."""
        return [text for key in keys or self.phases for text in self.happens(messages.Ready, key)]

    def starts(self, *keys: str) -> list[str]:
        """These roles, or all, enter the user's function."""
        return [text for key in keys or self.phases for text in self.happens(messages.Started, key)]

    def running(self) -> Course:
        """Go on until all roles are in the user's function."""
        self.placed()
        self.up()
        self.starts()
        assert set(self.phases.values()) == {RolePhase.RUNNING}
        return self

    def exits(self, *keys: str, cause: str = "it was killed.") -> list[str]:
        return [text for key in keys for text in self.happens(messages.Exited, key, cause=cause)]

    def fails(self, key: str, error: str = "ValueError: no.", *, launching: bool = False, **more: Any) -> list[str]:
        return self.happens(messages.Failed, key, error=error, launching=launching, **more)

    def returns(self, *keys: str) -> list[str]:
        return [text for key in keys for text in self.happens(messages.Ended, key)]

    def stopped(self, reason: str = "val_loss < 0.1") -> list[str]:
        return self.happens(messages.Stop, reason=reason)


@pytest.fixture(scope="session")
def a_run() -> Callable[..., Course]:
    """Makes a run that has just been asked for; settings are those of its plan."""
    return Course
