"""The driver's loop: what is told turns the run, what the run wants is done, and nothing is left at the end."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from distributed.client import ClosedClientError

from dask_train.driver import loop as loop_module
from dask_train.errors import DataError, RoleLostError
from dask_train.process import messages
from dask_train.run import events
from dask_train.run.commands import Verdict
from dask_train.run.messages import (
    Ended,
    Exited,
    Failed,
    Go,
    Kill,
    Ready,
    Started,
    StartProcess,
    Stop,
    WorkerLost,
)
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import RolePhase
from dask_train.run.stopping import StopRule


async def test_a_run_from_room_to_results(driven):
    async with driven(worker=2) as it:
        await it.running()
        assert it.driver._shield.is_up
        assert [(at, type(m).__name__, *of) for at, m, of in it.scheduler.letters] == [
            ("a", "StartProcess", "worker", 0, 0),
            ("b", "StartProcess", "worker", 1, 0),
            ("a", "Go", "worker", 0, 0),
            ("b", "Go", "worker", 1, 0),
        ]
        assert [m.roles_on_host for _, m, _ in it.scheduler.sent(StartProcess)] == [2, 2]
        assert [m.peers for _, m, _ in it.scheduler.sent(Go)] == [{"worker": ["h:0", "h:1"]}] * 2
        assert it.driver.summary()["phase"] == "running"
        it.returns(0, "zero")
        it.returns(1, "one")
    assert it.driver.finish.verdict is Verdict.OK
    assert [pickle.loads(it.driver.history.results["worker", rank].result) for rank in (0, 1)] == ["zero", "one"]
    assert set(it.data.have_left) == {("worker", 0), ("worker", 1)}
    (opened,) = it.scheduler.questions("train_run_open")
    polls = it.scheduler.questions("train_run_events")
    waits = {(poll["timeout_s"], poll["progress_s"]) for poll in polls}
    assert waits == {(it.scheduler.poll_s, loop_module.PROGRESS_S)}
    assert (opened["run"], opened["client"], opened["keys"]) == ("run", "me", ["a-partition"])
    (ended,) = it.scheduler.questions("train_run_end")
    assert ended["summary"]["outcome"] == "its training roles have returned"


async def test_a_client_that_the_scheduler_does_not_know_starts_nothing(driven):
    async with driven() as it:
        it.scheduler.answers["train_run_open"] = {"status": "unknown client"}
    assert it.driver.finish.verdict is Verdict.DRIVER
    assert "does not know the client me" in it.driver.finish.what
    assert not it.scheduler.questions("train_run_place")


@pytest.mark.parametrize("handler", ["train_run_place", "train_run_post", "train_run_note"])
async def test_a_scheduler_that_does_not_answer_ends_the_run(driven, handler):
    async with driven() as it:
        it.scheduler.answers[handler] = error = RoleLostError("The Dask scheduler did not answer.")
    assert it.driver.finish.verdict is Verdict.DRIVER
    assert it.driver.finish.what == "The Dask scheduler did not answer."
    assert it.driver.history.driver_error is error


async def test_a_run_that_the_scheduler_has_ended_says_why(driven):
    async with driven() as it:
        await it.running()
        it.scheduler.answers["train_run_show"] = {"status": "OK", "summary": {"outcome": "its client was silent"}}
        it.scheduler.answers["train_run_events"] = {"status": "gone"}
        it.scheduler.tells(messages.Progress(steps=1, doing="w", moved=True, awaits_client=False), "worker")
    assert it.driver.finish.what == "The scheduler has ended run run: its client was silent."


async def test_values_wait_for_their_roles_and_those_for_roles_that_are_gone_are_dropped(driven):
    async with driven(worker=2) as it:
        it.driver.send([("worker", 1)], b"first")  # there is no such process yet
        it.driver.send([("worker", 0), ("worker", 1)], b"second")
        await it.running()
        it.returns(0)
        await it.scheduler.until(lambda: it.phase("worker") is RolePhase.RETURNED)
        it.driver.send([("worker", 0), ("worker", 1)], b"third")
        await it.scheduler.until(lambda: it.scheduler.sent(messages.Value)[-1][1].value == b"third")
        it.returns(1)
    sent = [(of.rank, message.value) for _, message, of in it.scheduler.sent(messages.Value)]
    assert sent == [(0, b"second"), (1, b"first"), (1, b"second"), (1, b"third")]
    kinds = [type(message) for _, message, of in it.scheduler.letters if of.rank == 1]
    assert kinds[:3] == [StartProcess, messages.Value, messages.Value], "not before the process that they are for"


async def test_waits_for_the_run_are_told_once_however_many_wait(driven):
    async with driven() as it:
        await it.running()
        with it.driver.awaited(), it.driver.awaited():
            await it.scheduler.until(lambda: it.driver.state.client_waits is not None)
        await it.scheduler.until(lambda: it.driver.state.client_waits is None)
        it.returns()
    waits = [event.what.waits for event in it.events if isinstance(event.what, events.ClientWaits)]
    assert waits == [True, False]


class Rule(StopRule):
    """Ends the run at a score of 0, and keeps what it was asked."""

    def __init__(self) -> None:
        self.since: list[tuple[int, int]] = []
        self.seconds: list[float] = []

    def met(self, scores: Any, progress: Any, since: int = 0) -> str | None:
        self.since.append((since, len(scores)))
        self.seconds.append(progress.seconds)
        if any(score["loss"] < 0 for score in scores):
            raise ZeroDivisionError("a rule's own fault")
        return "the loss is 0" if any(score["loss"] == 0 for score in scores[since:]) else None


def report(*losses: float) -> messages.Reported:
    return messages.Reported(scores=[{"role": "worker", "rank": 0, "loss": loss} for loss in losses])


async def test_a_rule_that_is_met_asks_roles_to_stop(driven):
    rule = Rule()
    async with driven({"stop": rule}) as it:
        await it.running()
        it.scheduler.tells(report(2.0, 1.0), "worker")
        await it.scheduler.until(lambda: len(it.driver.history.scores) == 2)
        it.scheduler.tells(report(0.0), "worker")
        (stop,) = await it.scheduler.until(lambda: it.scheduler.sent(Stop))
        assert stop[1].reason == "the loss is 0"
        it.returns()
    assert it.driver.finish.verdict is Verdict.OK
    assert it.driver.finish.what == "the loss is 0"
    assert [(since, until) for since, until in rule.since if since != until] == [(0, 2), (2, 3)], "each score once"


async def test_the_seconds_of_a_rule_go_on_where_all_start_again(driven, monkeypatch):
    monkeypatch.setattr(loop_module, "TICK_S", 0.01)
    rule = Rule()
    async with driven({"stop": rule}, {"recovery": RecoveryPolicy(scope="gang")}) as it:
        await it.running()
        await it.scheduler.until(lambda: rule.seconds and rule.seconds[-1] > 0.1)
        it.scheduler.tells(Exited(cause="it was killed."), "worker")
        await it.scheduler.until(lambda: len(it.scheduler.sent(StartProcess)) == 2)
        num_before = len(rule.seconds)
        for message in (Ready(pid=7, peer="h:0"), Started()):
            it.scheduler.tells(message, "worker", attempt=1)
        await it.scheduler.until(lambda: len(rule.seconds) > num_before)
        for message in (Ended(result=pickle.dumps(None)), Exited(cause="")):
            it.scheduler.tells(message, "worker", attempt=1)
    assert rule.seconds == sorted(rule.seconds)


async def test_a_rule_that_raises_ends_the_run_and_is_named(driven):
    async with driven({"stop": Rule()}, {"stop_s": 0.1}) as it:
        await it.running()
        it.scheduler.tells(report(-1.0), "worker")
        await it.scheduler.until(lambda: it.scheduler.sent(Kill))
        it.scheduler.tells(Exited(cause="it was killed."), "worker")
    assert it.driver.finish.verdict is Verdict.DRIVER
    assert "The stop rule raised ZeroDivisionError" in it.driver.finish.what
    assert isinstance(it.driver.history.driver_error, ZeroDivisionError)


async def test_the_clock_goes_on_by_itself(driven, monkeypatch):
    monkeypatch.setattr(loop_module, "TICK_S", 0.01)
    async with driven(plan={"launch_s": 0.05}) as it:
        await it.scheduler.until(lambda: it.scheduler.sent(StartProcess))
        await it.scheduler.until(lambda: it.scheduler.sent(Kill))  # it was never ready
        it.scheduler.tells(Exited(cause="it was killed."), "worker")
    assert it.driver.finish.verdict is Verdict.LAUNCH


async def test_data_that_can_not_be_had_fail_the_run(driven):
    cause = ValueError("no such file")

    async def described(_: Any) -> None:
        raise DataError("data['worker'] can't be computed.") from cause

    async with driven(plan={"with_data": frozenset({"worker"})}) as it:
        it.data.by_role["worker"] = None
        it.data.described = described
        await it.scheduler.until(lambda: it.scheduler.sent(StartProcess))
        await it.scheduler.until(lambda: it.scheduler.sent(Kill))
        it.scheduler.tells(Exited(cause="it was killed."), "worker")
    assert it.driver.finish.verdict is Verdict.DATA
    assert "data['worker'] can't be computed." in it.driver.finish.what
    assert it.driver.history.driver_error is cause


async def test_a_picture_is_asked_of_those_that_are_there_and_ends_though_one_is_silent(driven, monkeypatch):
    monkeypatch.setattr(loop_module, "PICTURES_S", 0.2)
    picture = messages.Pictured(pid=101, state="running", doing="in fit", for_s=1.0, steps=7, stacks="in fit()")
    async with driven(worker=3) as it:
        await it.running()
        it.returns(0)
        await it.scheduler.until(lambda: it.phase("worker") is RolePhase.RETURNED)
        taking = asyncio.ensure_future(it.driver.picture())
        asked = await it.scheduler.until(lambda: it.scheduler.sent(messages.Diagnose))
        assert [of.rank for _, _, of in asked] == [1, 2]
        it.scheduler.tells(picture, "worker", 1)
        text = await taking
        assert "in fit since 1 s, 7 batches" in text
        assert "worker 2 on a: running; its agent does not answer" in text
        it.returns(1)
        it.returns(2)


async def test_data_that_dask_does_not_give_up_keep_nobody(driven, monkeypatch):
    monkeypatch.setattr(loop_module, "CANCEL_S", 0.05)
    async with driven() as it:

        async def cancel() -> None:
            it.data.cancelled = True
            await asyncio.Event().wait()

        it.data.cancel = cancel
        await it.running()
        it.returns()
    assert it.driver.finish.verdict is Verdict.OK


async def test_the_cluster_is_as_before_though_the_client_was_closed(driven):
    """The fixture looks at the shield."""
    async with driven() as it:

        async def cancel() -> None:
            it.data.cancelled = True
            raise ClosedClientError("the client is closed")

        it.data.cancel = cancel
        await it.running()
        it.returns()
    assert it.driver.finish.verdict is Verdict.OK


class Exits(Rule):
    """Raises what is no Exception, as ``sys.exit()`` in a rule does."""

    def met(self, scores, progress, since=0):
        if scores:
            raise SystemExit("enough")
        return ""


class Nameless(Rule):
    """Is never met, and can't say what it looks at."""

    @property
    def names(self):
        raise LookupError("no names")

    def met(self, scores, progress, since=0):
        return ""


async def test_a_rule_that_exits_ends_the_run_and_not_the_client(driven):
    async with driven({"stop": Exits()}, {"stop_s": 0.1}) as it:
        await it.running()
        it.scheduler.tells(report(-1.0), "worker")
        await it.scheduler.until(lambda: it.scheduler.sent(Kill))
        it.scheduler.tells(Exited(cause="it was killed."), "worker")
    assert "The stop rule raised SystemExit: enough" in it.driver.finish.what


async def test_what_raises_when_the_run_has_ended_is_how_it_ended(driven):
    async with driven({"stop": Nameless()}) as it:
        await it.running()
        it.returns()
    assert it.driver.over
    assert it.driver.finish.verdict is Verdict.DRIVER
    assert it.driver.history.outcome == "DaskTrainError: LookupError: no names"
    assert isinstance(it.driver.history.driver_error, LookupError)


async def test_what_the_scheduler_is_told_has_no_secrets(driven):
    async with driven() as it:
        await it.running()
        it.driver.trials.append({"number": 1, "params": {"url": "http://u:hunter2@h"}, "error": "a\udcff"})
        assert it.driver.summary()["trials"] == [{"number": 1, "params": {"url": "http://***@h"}, "error": "a\\udcff"}]
        it.scheduler.tells(Failed(error="no such place: http://u:hunter2@h"), "worker")
    (ended,) = it.scheduler.questions("train_run_end")
    assert "http://***@h" in ended["summary"]["outcome"]
    assert "hunter2" not in repr(ended)


async def test_what_is_lost_with_a_dask_worker_has_left_nothing(driven):
    async with driven({}, {"recovery": RecoveryPolicy(scope="gang")}, worker=2) as it:
        await it.running()
        it.driver.happened(WorkerLost(address="b"))
        await it.scheduler.until(lambda: ("worker", 1) in it.data.have_left)
        await it.scheduler.until(lambda: it.scheduler.sent(Kill))
        assert it.data.have_left == [("worker", 1)]
        it.scheduler.tells(Exited(cause="it was killed."), "worker", 0)
        await it.scheduler.until(lambda: it.driver.state.roles["worker", 1].attempt == 1)
        assert it.data.have_left.count(("worker", 1)) == 2, "what was told of it meanwhile is forgotten, too"
        it.driver.stop("enough")
