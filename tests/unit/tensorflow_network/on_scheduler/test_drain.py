"""Restarts that can't go on as they were planned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dask_train.tensorflow_network.on_scheduler import drain
from dask_train.tensorflow_network.on_scheduler.drain import restart_emptied


class Layouts:
    """A picture in which b gives its key away, or does not."""

    def __init__(self, moves: bool) -> None:
        self.moves = moves
        self.held = {"a": [], "b": ["x"]}

    def of(self, scheduler: Any, addresses: list[str]) -> Any:
        return self

    @property
    def holders(self) -> dict[str, set[str]]:
        return {"x": {"b"}}

    needed = frozenset({"x"})

    def only_on(self, wave: list[str]) -> list[str]:
        return [key for address in wave for key in self.held[address]]

    def shares(self, wave: list[str]) -> Any:
        return ({"c": self.only_on(wave)} if self.only_on(wave) else {}), []

    def next_wave(self, waiting: list[str]) -> list[str]:
        return waiting[:1]


class Scheduler:
    """Records what is done to it."""

    def __init__(self, layouts: Layouts, hang: bool) -> None:
        self.workers = {"a": None, "b": None, "c": None}
        self.tasks: dict[str, Any] = {"x": type("Task", (), {"key": "x", "actor": False, "get_nbytes": lambda _: 7})()}
        self.layouts, self.hang = layouts, hang

    async def gather_on_worker(self, target: str, who_has: dict[str, list[str]]) -> set[str]:
        if self.hang:
            await asyncio.Event().wait()
        if self.layouts.moves:
            self.layouts.held["b"] = []
        return set()


@pytest.mark.parametrize(
    ("moves", "hang", "force", "done", "held"),
    [
        (True, False, False, ["restart a", "stop b", "restart b"], []),
        (False, False, False, ["restart a", "stop b", "go on b"], ["x (7 bytes)"]),
        (False, True, False, ["restart a", "stop b", "go on b"], ["x (7 bytes)"]),
        (False, False, True, ["restart a", "stop b", "restart b"], []),
    ],
    ids=["moved", "refused", "late", "forced"],
)
def test_what_is_needed_is_never_restarted_away(monkeypatch, moves, hang, force, done, held):
    did = []

    def set_status(_: Any, wave: list[str], status: str) -> None:
        did.append(f"{'go on' if status == 'running' else 'stop'} {','.join(wave)}")

    async def restart(scheduler: Any, wave: list[str], deadline: float) -> list[str]:
        did.append(f"restart {','.join(wave)}")
        return []

    layouts = Layouts(moves)
    monkeypatch.setattr(drain, "TOLD_S", 0)
    monkeypatch.setattr(drain, "ClusterPicture", layouts)
    monkeypatch.setattr(drain, "set_status", set_status)
    monkeypatch.setattr(drain, "restart", restart)
    answer = asyncio.run(restart_emptied(Scheduler(layouts, hang), ["a", "b", "gone"], 0.05, force=force))
    assert (did, answer) == (done, ([], held))
