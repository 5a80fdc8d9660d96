"""What a verb asks for becomes the job of a run, or is refused before there is a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest

from dask_train.checkpoint.policy import Checkpoint
from dask_train.driver.settings import RunInputs, RunSettings
from dask_train.errors import DataError
from dask_train.frameworks.base import Framework
from dask_train.run.recovery import RecoveryPolicy
from dask_train.training import launch as launch_module
from dask_train.training.launch import place_of


def train(session: Any) -> None:
    """Do nothing."""


def score(session: Any) -> None:
    """Do nothing either."""


def launch(function: Any, *, roles: Any = None, data: Any = None, datasets: Any = None, **given: Any) -> Any:
    """Launch with the settings of a run among what is given."""
    run = RunSettings.of(given, progress=given.pop("progress", None))
    inputs = RunInputs(data=data, datasets=datasets)
    more = {name: given[name] for name in ("framework", "display") if name in given}
    return launch_module.launch(function, roles, inputs, run, **more)


class Serving(Framework):
    """Its parameter servers and workers agree at every step."""

    name = "serving"

    def default_role(self, role: str) -> Any:
        return train if role == "ps" else None

    def agrees_every_step(self, counts: Any) -> bool:
        return counts.get("worker", 0) > 1

    def check(self, counts: Any) -> None:
        if counts.get("chief", 0) > 1:
            raise ValueError("one chief at most")


class Run:
    """A run that ends as ``ends`` says when it is waited for."""

    ends: BaseException | None = None

    def __init__(self, driver: Any, finish: Any, display: Any) -> None:
        self.job, self.data, self.finish = *driver, finish
        self.ended_for: list[BaseException] = []
        self.stopped: list[str] = []
        self.watched: Any = "nobody waits"

    def result(self, watch: Any = None) -> str:
        self.watched = watch
        if self.ends is not None:
            raise self.ends
        return "a result"

    def end_for(self, error: BaseException) -> None:
        self.ended_for.append(error)

    def stop_soon(self, reason: str) -> None:
        self.stopped.append(reason)


class Peer:
    """A client that waits, unless told otherwise."""

    asynchronous = False

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, function: Any, *args: Any) -> Any:
        return asyncio.run(function(*args))


class Cluster:
    """Stands for all around ``launch``: what was done, in order, and the runs that were started."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.runs: list[Run] = []
        self.before: list[Any] = []
        self.budget: dict[str, int] = {}
        self.run_ends: BaseException | None = None
        self.refuses: Exception | None = None

    def client(self, client: Any, num_workers: int) -> str:
        self.did.append(f"a client for {num_workers}")
        return client or "a client"

    def run(self, driver: Any, finish: Any, display: Any) -> Run:
        run = Run(driver, finish, display)
        run.ends = self.run_ends
        self.runs.append(run)
        return run

    def noting(self, what: str) -> Any:
        async def note(*args: Any, **_: Any) -> None:
            self.did.append(what)
            if what == "budget":
                self.budget = args[1]
                if self.refuses is not None:
                    raise self.refuses

        return note

    @property
    def job(self) -> Any:
        return self.runs[-1].job


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(launch_module, "client_or_local", made.client)
    monkeypatch.setattr(launch_module, "default_workers", lambda client, on: 7)
    monkeypatch.setattr(launch_module, "Peer", Peer)
    monkeypatch.setattr(launch_module, "Driver", lambda peer, job, data, beside: (job, data))
    monkeypatch.setattr(launch_module, "RunData", lambda peer, columns, window, named: (columns, window, named))
    monkeypatch.setattr(launch_module, "Run", made.run)
    monkeypatch.setattr(launch_module, "remember", lambda cell, run: made.did.append("remember"))
    monkeypatch.setattr(launch_module, "runs_before", lambda cell: made.before)
    for name in ("ensure_plugin", "check_budget", "check_modules", "check_checkpoints"):
        monkeypatch.setattr(launch_module, name, made.noting(name.split("_")[1]))
    return made


def test_what_was_asked_for_is_the_plan_of_the_run(cluster):
    with dask.config.set({"train.progress.timeout": "7s", "train.client.timeout": "9s"}):
        launch(
            {"worker": train, "scorer": score},
            roles={"ps": 1, "worker": 2, "scorer": 1},
            data=np.arange(6),
            framework=Serving(),
            recovery=None,
            resources={"GPU": 1},
            on=["tcp://a:1"],
            wait=False,
        )
    job, plan = cluster.job, cluster.job.plan
    assert (plan.counts, plan.training, plan.services) == ({"ps": 1, "worker": 2, "scorer": 1}, {"worker"}, {"ps"})
    assert (plan.with_data, plan.agree, plan.recovery) == ({"worker"}, True, None)
    assert plan.replaceable == {"ps", "scorer"}, "workers that agree are replaced together"
    assert (plan.progress_s, job.client_s) == (7.0, 9.0)
    assert (job.needs["worker"], job.run.on) == ({"GPU": 1.0}, ["tcp://a:1"])
    assert job.names == {"ps": "train", "worker": "train", "scorer": "score"}
    assert job.functions["ps"] is job.functions["worker"], "one function travels once"
    assert pickle.loads(job.functions["scorer"].pickle) is score
    assert job.id.startswith("train-")


@pytest.mark.parametrize(
    ("roles", "training"),
    [
        ({"ps": 1, "learner": 2}, {"learner"}),
        ({"ps": 1, "learner": 2, "looker": 1}, {"learner", "looker"}),
        ({"ps": 1, "worker": 2, "looker": 1}, {"worker"}),
        ({"ps": 1}, {"ps"}),
    ],
)
def test_parameter_servers_of_ones_own_train_only_where_nothing_else_does(cluster, roles, training):
    launch(dict.fromkeys(roles, train), roles=roles)
    assert cluster.job.plan.training == training


def test_defaults(cluster):
    launch({"worker": train, "scorer": score}, wait=False)
    assert cluster.job.plan.counts == {"worker": 7, "scorer": 1}
    assert cluster.job.plan.recovery == RecoveryPolicy()
    assert cluster.job.preload.modules == Framework.imports
    assert (cluster.job.checkpoint, cluster.job.run.stop) == (None, None)
    launch(lambda session: None, name="nightly", wait=False)
    assert cluster.job.id.startswith("nightly-")
    launch(lambda session: None, roles={"worker": 3}, wait=False)
    assert cluster.job.id.startswith("lambda-"), "a name that can be typed"
    assert cluster.did.count("a client for 3") == 1, "a new cluster has room for all roles"


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"function": "train"}, TypeError, "The function of role 'worker' is 'train'"),
        (
            {"function": lambda: None},
            TypeError,
            r"'worker', <lambda>\(\), is called with a session and nothing else: too many",
        ),
        ({"function": lambda a, b: None}, TypeError, "nothing else: missing a required argument: 'b'. Let it take one"),
        ({"roles": 2}, TypeError, "roles is 2, of type int; pass a mapping of role name to count"),
        ({"function": {}}, ValueError, "train was given no function"),
        ({"on": "tcp://a:1"}, ValueError, "on is 'tcp://a:1'; pass a list"),
        ({"on": []}, ValueError, r"on is \[\]; pass a list"),
        ({"wait": 1}, TypeError, "wait is 1; it is True or False"),
        ({"name": ""}, ValueError, "name"),
        ({"recovery": "some"}, ValueError, "recovery"),
        ({"recovery": "in_place"}, ValueError, "boosted trees, and this run is of framework 'numpy'"),
        ({"stop": 3}, TypeError, "stop"),
        ({"framework": "tensorfl"}, ValueError, "tensorfl"),
        ({"streaming": -1}, ValueError, "streaming"),
        ({"resume": True}, ValueError, "resume"),
        ({"data": object()}, TypeError, "data"),
        ({"datasets": {"more": object()}}, TypeError, "more"),
    ],
)
def test_what_can_not_be_is_refused_before_there_is_a_cluster(cluster, arguments, error, told):
    with pytest.raises(error, match=told):
        launch(**{"function": train, **arguments})
    assert cluster.did == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"roles": {"chief": 1}}, "Role 'chief' has no function, and no default"),
        ({"roles": {"worker": 1}, "function": {"worker": train, "scorer": score}}, "There is function for role 'scor"),
        ({"roles": {"worker": 1}, "data": {"scorer": np.arange(3)}}, "There is data for role 'scorer', .*worker=1"),
        ({"roles": {"ps": 2}, "function": {"ps": None}}, "The function of role 'ps' is None"),
        ({"roles": {"chief": 2}, "function": {"chief": train}}, "one chief at most"),
    ],
)
def test_roles_that_do_not_fit_are_refused_before_anything_starts(cluster, arguments, told):
    with pytest.raises((ValueError, TypeError), match=told):
        launch(**{"function": train, "framework": Serving(), **arguments})
    assert not cluster.runs


def test_a_run_of_nothing_but_defaults_would_never_end(cluster):
    with pytest.raises(ValueError, match="All roles have only their defaults"):
        launch_module.check_roles({"ps": 1}, {}, {}, Serving())


def test_data_is_checked_before_a_run_starts_and_earlier_runs_of_the_cell_end_then(cluster):
    async def replaced() -> None:
        cluster.did.append("replaced")

    cluster.before = [SimpleNamespace(replaced=replaced)]
    launch(train, data=np.arange(6), datasets={"more": np.zeros(2)}, roles={"worker": 1}, wait=False)
    assert cluster.did[1:] == ["plugin", "budget", "modules", "checkpoints", "replaced", "remember"]
    assert cluster.budget == {"worker": 48, "datasets more": 16}
    cluster.refuses, cluster.did = DataError("too large."), []
    with pytest.raises(DataError, match="too large"):
        launch(train, data=np.arange(6), roles={"worker": 1}, wait=False)
    assert "replaced" not in cluster.did
    assert len(cluster.runs) == 1


def test_who_waits_is_shown_the_run_and_given_its_result(cluster):
    shown = SimpleNamespace(shown=True, update="update")
    assert launch(train, roles={"worker": 1}, display=lambda _: contextlib.nullcontext(shown)) == "a result"
    assert cluster.runs[-1].watched == "update"
    shown.shown = False
    launch(train, roles={"worker": 1}, display=lambda _: contextlib.nullcontext(shown))
    assert cluster.runs[-1].watched is None
    assert launch(train, roles={"worker": 1}, wait=False) is cluster.runs[-1]
    assert cluster.runs[-1].watched == "nobody waits"


def test_what_is_raised_where_a_run_is_awaited_ends_it(cluster):
    cluster.run_ends = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launch(train, roles={"worker": 1}, progress=False)
    assert cluster.runs[-1].ended_for == [cluster.run_ends]


def test_a_caller_that_is_cancelled_leaves_no_run(cluster, monkeypatch):
    monkeypatch.setattr(Peer, "asynchronous", True)

    async def story() -> None:
        waiting = asyncio.Event()

        async def result(_: Run) -> None:
            waiting.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Run, "result", result)
        calling = asyncio.ensure_future(launch(train, roles={"worker": 1}))
        await asyncio.wait_for(waiting.wait(), 60)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    asyncio.run(story())
    assert cluster.runs[-1].stopped == ["its caller waits no longer"]


def test_where_checkpoints_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = place_of(Checkpoint("kept", every_steps=5, keep=3, best="val_loss"), "run-1", resume=True)
    assert (found.url, found.run, found.resume) == (str(tmp_path / "kept"), "run-1", True)
    assert (found.every_steps, found.keep, found.best, found.mode) == (5, 3, "val_loss", "min")
    assert place_of(Checkpoint("s3://bucket/kept"), "run-1", resume=False).url == "s3://bucket/kept"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert place_of(Checkpoint("~/kept"), "run-1", resume=False).url == str(tmp_path / "home" / "kept")
    with pytest.raises(ValueError, match="'s3:/bucket/kept' is a URL of which a Path has kept"):
        Checkpoint(Path("s3://bucket/kept"))
    with pytest.raises(ValueError, match="lies in the memory of one process"):
        place_of(Checkpoint("memory://kept"), "run-1", resume=False)
