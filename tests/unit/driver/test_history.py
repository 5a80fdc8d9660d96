"""What is kept of a run."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.driver.history import History
from dask_train.process.messages import Accounted, Pictured, Progress, Reported
from dask_train.run import events, messages
from dask_train.run.commands import Finish, Verdict
from dask_train.run.messages import RoleProcess
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.replay import replay, to_record
from dask_train.run.state import Phase, Role, RolePhase, RunPlan, RunState
from dask_train.run.threshold import Threshold
from dask_train.run.transitions import begin, step


class Drive:
    """A run of two workers that is driven by hand, with its history."""

    def __init__(self, **settings: Any) -> None:
        plan = RunPlan(counts={"worker": 2}, training=frozenset({"worker"}), **settings)
        self.history = History(SimpleNamespace(id="run-1", checkpoint=None))
        self.state, _ = begin(plan, 0.0)
        self.history.begin(self.state)
        self.said: list[str] = []

    def happens(self, kind: type[Any], time: float, of: RoleProcess | None = None, **more: Any) -> None:
        before, event = self.state, events.Event(time, kind(**more), of)
        self.state, todo = step(before, event)
        self.history.turned(before, event, self.state, todo)
        self.said += [type(command).__name__ for command in todo]

    def of(self, rank: int, kind: type[Any], time: float, **more: Any) -> None:
        attempt = self.state.roles["worker", rank].attempt
        self.happens(kind, time, RoleProcess("worker", rank, attempt), **more)

    def running(self, time: float) -> None:
        self.happens(events.Placed, time, places={"worker/0": "a", "worker/1": "b"})
        for rank in range(2):
            self.of(rank, messages.Ready, time, pid=1, peer="")
        for rank in range(2):
            self.of(rank, messages.Started, time)

    def replayed(self) -> list[str]:
        """What a replay of the log wants done, which has to be what it wanted then."""
        lines = json.loads(json.dumps(to_record(self.history.first, self.history.log)))
        compared = replay(lines)
        assert [now for _, now in compared] == [then for then, _ in compared]
        return [command["is"] for _, now in compared for command in now]


def test_the_log_leaves_out_what_changes_nothing():
    run = Drive()
    run.running(1.0)
    length = len(run.history.log)
    for number in range(100):
        run.happens(events.Ticked, 2.0 + number)
        run.of(0, events.Progressed, 2.5 + number)
        run.of(1, events.Progressed, 2.5 + number)
        run.happens(messages.DataProgressed, 2.5 + number)
    assert len(run.history.log) == length
    run.of(0, messages.Ended, 200.0)
    assert len(run.history.log) == length + 4, "the last progress of each, and the end"
    run.of(1, messages.Ended, 201.0)
    assert run.replayed() == run.said


def test_progress_that_ended_a_diagnosis_replays():
    run = Drive(progress_s=10.0)
    run.running(1.0)
    run.happens(events.Ticked, 12.0)
    run.of(0, events.Progressed, 12.5)
    run.happens(events.Diagnosed, 13.0, stalled=("x",))
    for rank in range(2):
        run.of(rank, messages.Ended, 14.0)
    assert run.said[-2:] == ["DiagnoseRoles", "Finish"]
    assert run.replayed() == run.said


def test_ticks_that_change_the_state_replay():
    """All are killed already when the time to stop is over, so that nothing is left to be done."""
    run = Drive(stop_s=5.0)
    run.happens(events.Placed, 1.0, places={"worker/0": "a", "worker/1": "b"})
    run.happens(messages.Stop, 2.0, reason="enough")
    run.happens(events.Ticked, 7.5)
    assert run.state.phase is Phase.ENDING
    run.happens(events.Ticked, 7.75)
    assert run.said[-1] == "Finish"
    assert run.replayed() == run.said


def test_attempts():
    run = Drive(recovery=RecoveryPolicy(scope="gang", max_restarts=1))
    run.running(1.0)
    run.of(1, messages.Exited, 2.0, cause="it fell.")
    run.of(0, messages.Exited, 3.0, cause="killed.")
    run.running(4.0)
    run.of(0, messages.Exited, 5.0, cause="it fell again.")
    run.of(1, messages.Exited, 6.0, cause="killed.")
    run.history.finished(Finish(verdict=Verdict.ROLE_LOST, what="worker 0 is lost."))
    first, second = run.history.attempts
    assert (first.number, first.started, first.ended, first.reason) == (0, 0.0, 2.0, "worker 1 is lost: it fell.")
    assert first.places == second.places == {"worker/0": "a", "worker/1": "b"}
    assert (second.number, second.started, second.reason) == (1, 2.0, "RoleLostError: worker 0 is lost.")
    assert run.replayed() == run.said


def test_a_role_that_starts_again_has_done_nothing_yet():
    run = Drive(recovery=RecoveryPolicy(scope="role", max_restarts=1), replaceable=frozenset({"worker"}))
    run.running(1.0)
    progress = Progress(steps=7, doing="working", moved=True, awaits_client=False, rows=70)
    for rank in range(2):
        run.history.moved(("worker", rank), progress, 2.0, 1.0)
    run.of(1, messages.Exited, 3.0, cause="it fell.")
    assert run.history.doing == {("worker", 0): ("working", 7)}
    assert run.history.rows_seen == {("worker", 0): 70}


def with_one_that_joins():
    """Return a run of two workers with a third one, which was placed at 3.0."""
    run = Drive(agree=True, in_place=True, recovery=RecoveryPolicy(scope="in_place"))
    run.running(1.0)
    for rank in range(2):
        run.of(rank, messages.Meets, 1.5, address=f"a:{rank}", size=0)
    run.happens(events.ResizeAsked, 2.0, number=0, size=3)
    run.happens(events.Placed, 3.0, places={"worker/2": "c"})
    return run


def test_when_roles_that_join_were_placed_is_kept():
    run = with_one_that_joins()
    (attempt,) = run.history.attempts
    assert attempt.places == {"worker/0": "a", "worker/1": "b", "worker/2": "c"}
    assert attempt.joined == {"worker/2": 3.0}


def test_when_roles_have_left_is_kept_until_they_join_again():
    run = with_one_that_joins()
    assert run.history.attempts[0].left == {}
    run.happens(events.ResizeCancelled, 4.0, number=0)
    run.of(2, messages.Exited, 5.0, cause="killed.")
    assert run.history.attempts[0].left == {"worker/2": 5.0}
    run.happens(events.ResizeAsked, 6.0, number=1, size=3)
    run.happens(events.Placed, 7.0, places={"worker/2": "c"})
    (attempt,) = run.history.attempts
    assert (attempt.joined, attempt.left) == ({"worker/2": 7.0}, {})


@pytest.mark.parametrize(
    ("finish", "outcome"),
    [
        (None, "cancelled"),
        (Finish(verdict=Verdict.OK), "its training roles have returned"),
        (Finish(verdict=Verdict.OK, what="loss < 0.1"), "loss < 0.1"),
        (Finish(verdict=Verdict.STALLED, what="Nobody moves."), "StalledError: Nobody moves."),
    ],
)
def test_how_it_ended(finish, outcome):
    history = Drive().history
    history.finished(finish)
    assert history.outcome == history.attempts[-1].reason == outcome
    assert history.attempts[-1].ended > 0


def test_scores_and_progress():
    history = Drive().history
    key = ("worker", 1)

    def progress(steps: int, doing: str, *, moved: bool = True) -> Progress:
        return Progress(steps=steps, doing=doing, moved=moved, awaits_client=False)

    assert history.moved(key, Reported(scores=[{"loss": 2.0}, {"loss": 1.0}]), 10.0, 1.0)
    assert not history.moved(key, progress(7, "working"), 10.9, 1.0), "not so often"
    assert history.moved(("worker", 0), progress(3, "waiting"), 10.9, 1.0)
    assert history.moved(key, progress(8, "working"), 11.0, 1.0)
    assert not history.moved(("worker", 0), progress(8, "asking", moved=False), 99.0, 1.0), "it has not got on"
    assert history.doing["worker", 0] == ("asking", 8)
    assert history.scores == [{"loss": 2.0}, {"loss": 1.0}]
    assert history.last_scores() == [["worker", 1, {"loss": 1.0}]]
    assert history.doing == {key: ("working", 8), ("worker", 0): ("asking", 8)}
    assert history.most_steps == 8
    history.moved(("scorer", 0), progress(99, "working"), 99.0, 1.0)
    assert history.most_steps == 8, "a validation is no training"


def pictured(**pictures: Any) -> tuple[History, RunState]:
    """A run whose workers w0, w1 have these pictures; None where the agent does not answer."""
    history = Drive().history
    default = {"pid": 7, "state": "sleeping", "doing": "in its function", "for_s": 3.0, "steps": 2, "stacks": "File x"}
    history.pictures = {("worker", int(n[1])): Pictured(**default | p) for n, p in pictures.items() if p is not None}
    roles = {("worker", int(n[1])): Role(phase=RolePhase.RUNNING, address="a") for n in pictures}
    return history, RunState(plan=RunPlan(counts={}, training=frozenset()), phase=Phase.RUNNING, roles=roles)


@pytest.mark.parametrize(
    ("pictures", "named"),
    [
        (
            {"w0": {}, "w1": {"stacks": "", "state": "stopped by a signal"}},
            ["worker 1 (process 7) does not answer: it is stopped by a signal"],
        ),
        ({"w0": {}, "w1": None}, ["worker 1 on a: its agent does not answer"]),
        ({"w0": {}, "w1": {"doing": "waiting"}}, ["worker 0 is in its function", "worker 1 is waiting"]),
    ],
)
def test_who_is_to_blame_for_a_stall(pictures, named):
    history, state = pictured(**pictures)
    assert list(history.stalled(list(state.roles), state)) == named


def test_a_diagnosis_in_words():
    ours = 'Thread 1 (most recent call first):\n  File "dask_train/role/link.py", line 7'
    theirs = 'Current thread 2 (most recent call first):\n  File "mine.py", line 3'
    history, state = pictured(w0={"stacks": f"{ours}\n\n{theirs}"}, w1={"stacks": ""}, w2=None)
    state.roles["worker", 3] = Role(phase=RolePhase.RETURNED)
    assert history.diagnosis_text(state).splitlines() == [
        "Run run-1: running: 3 running, 1 returned",
        "worker 0 on a, process 7: running, in its function since 3 s, 2 batches; the process is sleeping",
        *theirs.splitlines(),
        "worker 1 on a, process 7: running, in its function since 3 s, 2 batches; the process is sleeping",
        "  (no Python stacks: the process does not answer)",
        "",
        "worker 2 on a: running; its agent does not answer",
        "worker 3: returned",
    ]


def test_scores_by_names_of_progress_are_known():
    history, key = Drive().history, ("worker", 0)
    history.moved(key, Reported(scores=[{"loss": 2.0}, {"steps": 3}]), 10.0, 1.0)
    history.moved(key, Reported(scores=[{"loss": 1.0}]), 11.0, 1.0)
    assert history.reported_as_progress == {"steps"}


def test_rows_by_class_of_the_ledger():
    history = Drive().history
    history._job.plan = RunPlan(counts={"worker": 2}, training=frozenset({"worker"}))
    rows = {("worker", 0): 10}
    assert history.rows(rows) == {}, "none were read"
    for rank in range(2):
        account = [[0, 0, 0, 4, 0, 3, 2]]  # two of three batches of four, halved among two
        history.record(RoleProcess("worker", rank, 0), Accounted(account=account))
    assert history.rows(rows) == {"read": 10, "trained": 8, "repeated": 0, "dropped": 2}


@pytest.mark.parametrize(
    ("rule", "scores", "told"),
    [
        ("val_loss < 0.1", [{"val_los": 1.0, "role": "worker"}], "Roles reported val_los. Did you mean 'val_los'?"),
        ("val_loss < 0.1", [], "Roles reported no scores."),
        ("loss < 0 or acc > 1", [{"loss": 1.0}, {"acc": 0.5}], ""),
        ("steps > 100", [], ""),
    ],
)
def test_a_rule_that_waited_for_what_nobody_reports_is_told_of(rule, scores, told, capsys):
    history = Drive().history
    history.scores.extend(scores)
    history.finished(Finish(verdict=Verdict.OK), Threshold(rule))
    wanted = [f"stop looks at val_loss, which was never reported. {told}"] if told else []
    assert history.notices == wanted
    assert capsys.readouterr().err.count("never reported") == len(wanted)


@pytest.mark.parametrize(
    ("resume", "scores", "steps", "num_told"),
    [(True, [], 0, 0), (True, [], 1, 1), (True, [{"loss": 1.0}], 0, 1), (False, [], 0, 1)],
)
def test_nothing_is_told_of_a_rule_where_a_checkpoint_left_nothing_to_train(resume, scores, steps, num_told):
    history = Drive().history
    history._job.checkpoint = CheckpointPlace(url="kept", run="run-1", resume=resume)
    history.most_steps = steps
    history.scores.extend(scores)
    history.finished(Finish(verdict=Verdict.OK), Threshold("val_loss < 0.1"))
    assert len(history.notices) == num_told


@pytest.mark.parametrize("finish", [None, Finish(verdict=Verdict.OK, what="stopped"), Finish(verdict=Verdict.STALLED)])
def test_nothing_is_told_of_a_rule_where_training_did_not_end_by_itself(finish):
    history = Drive().history
    history.finished(finish, Threshold("val_loss < 0.1"))
    assert history.notices == []


def test_files_that_are_left_out_are_told_once_and_counted():
    history = History(SimpleNamespace(id="run-1", plan=RunPlan(counts={"worker": 1}, training=frozenset({"worker"}))))
    for _ in range(2):
        history.files_skipped({"data['worker']": 3, "data set 'validation'": 0})
    history.files_skipped({"data set 'validation'": 1})
    assert history.notices == [
        "Files left out of data['worker'], since they can't be decoded: 3.",
        "Files left out of data set 'validation', since they can't be decoded: 1.",
    ]
    assert history.ledger({}).skipped == 4
