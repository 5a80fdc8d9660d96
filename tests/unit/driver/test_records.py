"""Runs as those see them who did not start them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.driver import records
from dask_train.driver.records import all_runs, ask, find_run, stop_run
from dask_train.errors import StalledError
from dask_train.process.messages import from_plain
from dask_train.run.messages import Stop

RUN = {"status": "OK", "id": "run-1", "ended": 0.0, "summary": {"phase": "running"}}


class Client:
    """A client of a scheduler that gives these answers, by question; the last one again and again."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, list[tuple[str, dict[str, Any]]]()

    def sync(self, function: Any, client: Client, handler: str, **message: Any) -> Any:
        assert (function, client) == (ask, self)
        self.asked.append((handler, message))
        answers = self.answers[handler]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch):
    monkeypatch.setattr(records, "LOOK_S", 0.0)


def unknown(*runs: str) -> dict[str, Any]:
    return {"status": "unknown", "runs": list(runs)}


def test_all_are_the_callers_own():
    known = [{"id": "a"}, {"id": "b"}]
    found = all_runs(Client(train_runs=[{"status": "OK", "runs": known}]))
    found[0]["id"] = "changed"
    assert known == [{"id": "a"}, {"id": "b"}]


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ((), r"The scheduler has no run 'mine'; it has no runs\."),
        (("other", "another"), r"has no run 'mine'; it has other, another\."),
        (("mine-1", "other", "mine-2"), r"2 runs begin with 'mine': mine-1, mine-2\. Give more of the name\."),
        (tuple(f"mine-{n}" for n in range(50)), r"50 runs begin with 'mine': 30 older ones, mine-30, .*mine-49\."),
    ],
)
def test_a_name_that_no_single_run_has(runs, says):
    for call in (find_run, lambda client, name: stop_run(client, name, "enough")):
        with pytest.raises(ValueError, match=says):
            call(Client(train_run_show=[unknown(*runs)], train_run_say=[unknown(*runs)]), "mine")


def test_one_that_was_over_is_not_waited_for():
    client = Client(train_run_say=[{**RUN, "ended": 5.0}])
    assert stop_run(client, "run", "enough") == ({**RUN, "ended": 5.0}, True)
    assert [handler for handler, _ in client.asked] == ["train_run_say"]


def test_one_that_is_asked_to_stop_is_waited_for_by_its_whole_name():
    client = Client(train_run_say=[RUN], train_run_show=[RUN, RUN, {**RUN, "ended": 5.0}])
    record, was_over = stop_run(client, "run", "enough")
    assert (record["ended"], was_over) == (5.0, False)
    assert from_plain(client.asked[0][1]["event"]) == (Stop(reason="enough"), None)
    assert [message["run"] for _, message in client.asked[1:]] == ["run-1"] * 3, "another may begin so meanwhile"


@pytest.mark.parametrize(("summary", "phase"), [({"phase": "running"}, "running"), ({}, "starting")])
def test_one_that_does_not_stop_is_not_waited_for_for_ever(summary, phase):
    record = {**RUN, "summary": summary}
    with pytest.raises(StalledError, match=rf"Run run-1 was asked to stop, and is not over after 0 s: it is {phase}\."):
        stop_run(Client(train_run_say=[record], train_run_show=[record]), "run", "enough", timeout_s=0.0)


@pytest.fixture
def scheduler(monkeypatch):
    """What is asked of the scheduler, of whose plug-in it has to be seen first."""
    it = SimpleNamespace(asked=[], hangs=())

    class Peer:
        def __init__(self, client: str) -> None:
            assert client == "client"

        async def ask(self, handler: str, **message: Any) -> dict[str, Any]:
            await answers(handler)
            return {"status": "OK", **message}

    async def ensure(_: Peer) -> None:
        await answers("plug-in")

    async def answers(what: str) -> None:
        it.asked.append(what)
        if what in it.hangs:
            await asyncio.Event().wait()

    monkeypatch.setattr(records, "Peer", Peer)
    monkeypatch.setattr(records, "ensure_plugin", ensure)
    return it


def test_a_scheduler_without_the_plug_in_gets_it_first(scheduler):
    assert asyncio.run(ask("client", "train_runs", run="x")) == {"status": "OK", "run": "x"}
    assert scheduler.asked == ["plug-in", "train_runs"]


@pytest.mark.parametrize("hangs", ["plug-in", "train_runs"])
def test_a_scheduler_that_hangs_is_an_error_in_time(scheduler, monkeypatch, hangs):
    scheduler.hangs = (hangs,)
    monkeypatch.setattr(records, "ANSWER_S", 0.01)
    with pytest.raises(StalledError, match=r"The scheduler did not answer train_runs within 0\.01 s"):
        asyncio.run(ask("client", "train_runs"))
