"""The Dask task that an agent is: it compares versions, serves, and leaves nothing."""

from __future__ import annotations

import importlib.util
import pickle
import platform
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import distributed
import pytest

from dask_train.version import __version__
from dask_train.worker import agent as agent_module
from dask_train.worker.agent_task import run_agent

HERE = {"python": platform.python_version(), "dask_train": __version__}


class Agent:
    """Notes who is in the registry while it runs; ``fails`` is what ends it."""

    fails: Exception | None = None
    has_told = True
    made: list[Agent]

    def __init__(self, worker: Any, brief: Any, name: str) -> None:
        self.worker, self.brief, self.name, self.gone = worker, brief, name, Future()
        self.made.append(self)

    async def run(self) -> None:
        self.known = dict(agent_module.registry(self.worker))
        assert not self.gone.done()
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The task's Dask worker, and how often it has given its thread back."""
    loop = SimpleNamespace(add_callback=lambda function: function())
    it = SimpleNamespace(worker=SimpleNamespace(plugins={}, loop=loop), num_seceded=0)

    def secede() -> None:
        it.num_seceded += 1

    monkeypatch.setattr(distributed, "secede", secede)
    monkeypatch.setattr(distributed, "get_worker", lambda: it.worker)
    monkeypatch.setattr(agent_module, "Agent", Agent)
    monkeypatch.setattr(Agent, "made", [], raising=False)
    return it


@pytest.mark.parametrize("fails", [None, ZeroDivisionError("a bug")])
def test_it_is_known_while_it_serves_and_gone_afterwards(task, monkeypatch, fails):
    monkeypatch.setattr(Agent, "fails", fails)
    if fails is None:
        assert run_agent("mine", "agent-1", HERE, pickle.dumps("brief")) is True, "it has told all"
    else:
        with pytest.raises(ZeroDivisionError):
            run_agent("mine", "agent-1", HERE, pickle.dumps("brief"))
    (served,) = Agent.made
    assert (served.brief, served.name, served.known) == ("brief", "agent-1", {"mine": served})
    assert agent_module.registry(task.worker) == {}
    assert served.gone.done()
    assert task.num_seceded == 1, "its thread is for data"


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ({"python": "2.7.18"}, r"^python is \S+ there and 2\.7\.18 in the client; install the same"),
        ({"dask_train": "0.0.1"}, r"^dask_train is \S+ there and 0\.0\.1 in the client; install the same"),
    ],
)
def test_other_versions_are_refused(task, client, told):
    with pytest.raises(RuntimeError, match=told):
        run_agent("mine", "agent-1", {**HERE, **client}, b"never read")
    assert Agent.made == []


def test_patches_of_python_make_no_difference(task):
    other = ".".join([*HERE["python"].split(".")[:2], "99"])
    run_agent("mine", "agent-1", {**HERE, "python": other}, pickle.dumps("brief"))
    assert len(Agent.made) == 1


def test_a_dask_worker_without_this_package(task, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(RuntimeError, match="dask_train is not installed there: install it as on the client"):
        run_agent("mine", "agent-1", HERE, b"never read")
