"""The course of a run, event by event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.run import commands, events, messages
from dask_train.run.commands import Verdict
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import Phase, RolePhase

WITH_PS = {"ps": 1, "worker": 2, "scorer": 1}

# The launch


def test_launch_in_order(a_run):
    run = a_run(counts={"worker": 2})
    assert (run.begun, run.phase) == (["PlaceRoles worker/0 worker/1"], Phase.PLACING)
    assert run.placed() == ["StartProcess worker/0#0@a", "StartProcess worker/1#0@b"]
    assert run.phase is Phase.LAUNCHING
    assert run.up("worker/1") == []
    assert run.up("worker/0") == ["Go worker/0#0@a", "Go worker/1#0@b"], "when all are ready"
    assert run.phase is Phase.RUNNING
    assert set(run.phases.values()) == {RolePhase.MEETING}
    assert run.starts() == []
    assert set(run.phases.values()) == {RolePhase.RUNNING}


def test_a_ready_role_tells_where_it_is_reached(a_run):
    run = a_run()
    run.placed()
    run.happens(messages.Ready, "worker/0", pid=77, peer="h:1")
    run.happens(messages.Ready, "worker/0", pid=78, peer="h:2")
    assert (run["worker/0"].pid, run["worker/0"].peer) == (77, "h:1")


def test_data_before_the_roles_are_placed(a_run):
    run = a_run(counts={"ps": 1, "worker": 1}, with_data=frozenset({"worker"}))
    assert run.happens(events.DataReady) == []
    assert run.placed() == ["StartProcess ps/0#0@a", "StartProcess worker/0#0@b", "Load worker/0#0@b"]
    assert run.happens(messages.Loaded, "worker/0") == []
    assert run.up() == ["Go ps/0#0@a", "Go worker/0#0@b"]


def test_data_after_the_roles_are_ready(a_run):
    run = a_run(counts={"ps": 1, "worker": 2}, with_data=frozenset({"worker"}))
    assert "Load" not in str(run.placed())
    assert run.up() == [], "they wait for the data"
    assert run.happens(messages.DataProgressed) == []
    assert run.happens(events.DataReady) == ["Load worker/0#0@b", "Load worker/1#0@c"]
    assert run.happens(messages.Loaded, "worker/1") == []
    assert run.happens(messages.Loaded, "worker/0") == [
        "Go ps/0#0@a",
        "Go worker/0#0@b",
        "Go worker/1#0@c",
    ]


def test_data_while_some_roles_start(a_run):
    run = a_run(with_data=frozenset({"worker"}))
    run.placed()
    run.up("worker/0")
    assert run.happens(events.DataReady) == ["Load worker/0#0@a", "Load worker/1#0@b"]
    assert run.happens(messages.Loaded, "worker/0") == []
    assert run.happens(messages.Loaded, "worker/1") == []
    assert run.up("worker/1") == ["Go worker/0#0@a", "Go worker/1#0@b"]


def test_no_room_ends_it(a_run):
    run = a_run()
    said = run.happens(events.NoRoom, wanted="worker=2 found no room within 60 s.", why="All busy.", change="Wait.")
    assert said == ["Finish PlacementError"]
    assert (run.finish.what, run.finish.cause, run.finish.change) == (
        "worker=2 found no room within 60 s.",
        "All busy.",
        "Wait.",
    )
    assert run.phase is Phase.OVER


def test_no_room_for_what_nobody_waits_for_is_ignored(a_run):
    run = a_run().running()
    assert run.happens(events.NoRoom, wanted="w", why="y", change="c") == []
    assert run.phase is Phase.RUNNING


def test_room_that_comes_twice_starts_nothing_twice(a_run):
    run = a_run().running()
    assert run.placed() == []
    assert set(run.phases.values()) == {RolePhase.RUNNING}


def test_data_that_fails_ends_it_when_all_are_gone(a_run):
    run = a_run(with_data=frozenset({"worker"}))
    run.placed()
    run.up("worker/0")
    said = run.happens(messages.DataFailed, error="Partition 3 of data['worker'] raised ValueError: no.")
    assert said == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.exits("worker/0", "worker/1") == ["Finish DataError"]
    assert run.finish.what == "Partition 3 of data['worker'] raised ValueError: no."


def test_a_driver_that_fails_ends_it(a_run):
    run = a_run().running()
    assert run.happens(events.DriverFailed, error="The scheduler is gone.") == [
        "Kill worker/0#0@a",
        "Kill worker/1#0@b",
    ]
    assert run.exits("worker/0", "worker/1") == ["Finish DaskTrainError"]
    assert run.finish.what == "The scheduler is gone."


def test_what_was_decided_first_holds(a_run):
    run = a_run().running()
    run.happens(events.DriverFailed, error="first")
    run.happens(messages.DataFailed, error="second")
    run.stopped()
    assert run.exits("worker/0", "worker/1") == ["Finish DaskTrainError"]
    assert run.finish.what == "first"


# The end


def test_workers_that_return_complete_it(a_run):
    run = a_run().running()
    assert run.returns("worker/1") == []
    assert run.phase is Phase.RUNNING
    assert run.returns("worker/0") == ["Finish ok"]
    assert (run.phase, run.finish.what) == (Phase.OVER, "")
    assert run.exits("worker/0", "worker/1") == []


def test_others_are_asked_to_stop_when_the_training_roles_have_returned(a_run):
    run = a_run(counts=WITH_PS).running()
    assert run.returns("worker/0") == []
    assert run.returns("worker/1") == ["Stop ps/0#0@a", "Stop scorer/0#0@d"]
    assert {command.message.reason for command in run.log[-1][1]} == {"the training roles have returned"}
    assert run.phase is Phase.COMPLETING
    assert run.returns("ps/0") == []
    assert run.returns("scorer/0") == ["Finish ok"]


def test_services_that_linger_are_killed_and_others_are_not(a_run):
    run = a_run(counts=WITH_PS, stop_s=5).running()
    run.returns("worker/0", "worker/1")
    assert run.tick(6) == [], "the scorer still works, and may need the ps"
    assert run.returns("scorer/0") == []
    assert run.tick(4.9) == []
    assert run.tick(0.2) == ["Kill ps/0#0@a"]
    assert run.exits("ps/0") == ["Finish ok"]


def test_a_service_whose_end_nobody_tells_does_not_hold_the_result_up(a_run):
    run = a_run(counts={"ps": 1, "worker": 1}, stop_s=5).running()
    run.returns("worker/0")
    assert run.tick(5.1) == ["Kill ps/0#0@a"]
    assert run.tick(5.1) == ["Finish ok"]


def test_a_service_lost_at_the_end_is_not_mended(a_run):
    run = a_run(counts=WITH_PS, recovery=RecoveryPolicy()).running()
    run.returns("worker/0", "worker/1")
    assert run.exits("ps/0") == []
    assert run.returns("scorer/0") == ["Finish ok"]
    assert run.state.losses == ()


@pytest.mark.parametrize("until", ["placing", "starting", "ready"])
def test_a_service_that_is_being_replaced_is_not_waited_for_at_the_end(a_run, until):
    run = a_run(counts={"ps": 1, "worker": 1}, recovery=RecoveryPolicy(), with_data=frozenset({"ps"}))
    run.happens(events.DataReady)
    run.placed()
    run.happens(messages.Loaded, "ps/0")
    run.up()
    run.starts()
    run.exits("ps/0")
    if until != "placing":
        run.placed("ps/0", on="c")
    if until == "ready":
        run.up("ps/0")
    said = run.returns("worker/0")
    if until == "placing":
        assert said == ["Free ps/0", "Finish ok"]
    else:
        assert said == ["Kill ps/0#1@c"]
        assert run.exits("ps/0") == ["Finish ok"]


def test_a_scorer_that_is_replaced_at_the_end_is_asked_to_stop_too(a_run):
    run = a_run(counts={"ps": 1, "worker": 1, "scorer": 1}, recovery=RecoveryPolicy(), stop_s=5).running()
    run.exits("scorer/0")
    assert run.returns("worker/0") == ["Stop ps/0#0@a"]
    assert run.tick(6) == [], "the scorer that comes may need the ps"
    run.placed("scorer/0", on="d")
    assert run.up("scorer/0") == ["Go scorer/0#1@d", "Stop scorer/0#1@d"]
    run.starts("scorer/0")
    run.returns("scorer/0")
    assert run.returns("ps/0") == ["Finish ok"]
    assert run.finish.notes == ()


# What the training roles have returned is the run's, whatever becomes of the others

POLICIES = [None, RecoveryPolicy(), RecoveryPolicy(scope="gang"), RecoveryPolicy(retry_errors=True)]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize(
    ("kind", "more", "note"),
    [
        (messages.Exited, {"cause": "it was killed."}, "scorer 0 is lost: it was killed."),
        (messages.Failed, {"error": "ValueError: no.", "launching": False}, "scorer 0 raised ValueError: no."),
        (messages.WorkerLost, {"address": "b"}, "scorer 0 is lost: the Dask worker b left the cluster."),
        (events.AgentFailed, {"address": "b", "error": "e."}, "scorer 0: the agent on b has ended: e."),
        (messages.DataFailed, {"error": "No rows."}, "No rows."),
        (events.DriverFailed, {"error": "The scheduler is gone."}, "The scheduler is gone."),
    ],
)
def test_a_scorer_that_ends_badly_when_all_have_trained(a_run, policy, kind, more, note):
    run = a_run(counts={"worker": 1, "scorer": 1}, recovery=policy, agree=True).running()
    run.returns("worker/0")
    said = run.happens(kind, "scorer/0" if kind in (messages.Exited, messages.Failed) else "", **more)
    if said == ["Kill scorer/0#0@b"]:
        said = run.exits("scorer/0")
    assert said == ["Finish ok"]
    assert run.finish.notes == (note,)
    assert run.state.num_restarts == 0


def test_one_of_two_scorers_that_ends_badly_takes_nothing_from_the_other(a_run):
    run = a_run(counts={"worker": 1, "scorer": 2}, recovery=RecoveryPolicy(scope="gang")).running()
    run.returns("worker/0")
    assert run.exits("scorer/0") == []
    assert run.returns("scorer/1") == ["Finish ok"]
    assert run.finish.notes == ("scorer 0 is lost: it was killed.",)


def test_no_room_for_a_scorer_when_all_have_trained(a_run):
    run = a_run(counts={"worker": 1, "scorer": 2}, recovery=RecoveryPolicy()).running()
    run.exits("scorer/0")
    run.returns("worker/0")
    assert run.happens(events.NoRoom, wanted="w", why="b is full.", change="c") == ["Free scorer/0"]
    assert run.returns("scorer/1") == ["Finish ok"]
    assert run.finish.notes == ("scorer 0 is lost: it was killed. There was no room to replace it: b is full.",)


# Stop


def test_a_stop_while_it_waits_for_room(a_run):
    run = a_run()
    assert run.stopped("Ctrl-C") == ["Free worker/0", "Free worker/1", "Finish ok"]
    assert run.finish.what == "Ctrl-C"


def test_room_that_comes_after_a_stop_is_given_back(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1}, recovery=RecoveryPolicy()).running()
    run.exits("scorer/0")
    assert run.stopped() == ["Stop worker/0#0@a", "Free scorer/0"]
    assert run.placed("scorer/0") == ["Free scorer/0"]
    assert run.returns("worker/0") == ["Finish ok"]


def test_a_stop_while_it_launches(a_run):
    run = a_run()
    run.placed()
    run.up("worker/0")
    assert run.stopped() == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.phase is Phase.STOPPING
    assert run.up("worker/1") == []
    assert run.exits("worker/0", "worker/1") == ["Finish ok"]


def test_a_stop_while_roles_meet(a_run):
    run = a_run()
    run.placed()
    run.up()
    run.starts("worker/0")
    assert run.stopped() == ["Stop worker/0#0@a", "Stop worker/1#0@b"], "it may have just started"
    assert run.starts("worker/1") == []
    run.returns("worker/1")
    assert run.returns("worker/0") == ["Finish ok"]


def test_a_stop_while_it_runs(a_run):
    run = a_run(counts=WITH_PS).running()
    run.returns("worker/1")
    assert run.stopped("loss < 0.1") == [
        "Stop ps/0#0@a",
        "Stop worker/0#0@b",
        "Stop scorer/0#0@d",
    ]
    assert run.stopped("again") == []
    run.returns("worker/0", "scorer/0")
    assert run.returns("ps/0") == ["Finish ok"]
    assert run.finish.what == "loss < 0.1"


@pytest.mark.parametrize(
    ("unanswered", "launching", "did"), [(False, False, "raised"), (True, True, "could not start:")]
)
def test_an_exception_just_before_a_stop_is_told_of(a_run, unanswered, launching, did):
    """Whether it was the echo of a loss is not known then."""
    run = a_run(agree=True).running()
    run.fails("worker/1", "ValueError: no.", unanswered=unanswered, launching=launching)
    run.stopped()
    run.returns("worker/0")
    assert run.finish.verdict is Verdict.OK
    assert run.finish.notes == (f"Before the run was stopped: worker 1 {did} ValueError: no.",)


def test_a_stop_while_services_end(a_run):
    run = a_run(counts={"ps": 1, "worker": 1}).running()
    run.returns("worker/0")
    assert run.stopped() == ["Stop ps/0#0@a"]
    assert run.returns("ps/0") == ["Finish ok"]


def test_a_stop_while_all_start_again(a_run):
    run = a_run(recovery=RecoveryPolicy(scope="gang")).running()
    assert run.exits("worker/0") == ["Kill worker/1#0@b"]
    assert run.stopped() == []
    assert run.exits("worker/1") == ["Finish ok"]
    assert run.state.num_restarts == 1


def test_a_stop_asked_of_roles_that_do_not_end(a_run):
    run = a_run(stop_s=5).running()
    run.stopped()
    assert run.tick(4.9) == []
    assert run.tick(0.2) == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.phase is Phase.ENDING
    assert run.exits("worker/0") == []
    assert run.tick(4.9) == []
    assert run.tick(0.2) == ["Finish ok"], "nor do their agents answer"


def test_losses_and_errors_after_a_stop_are_no_matter(a_run):
    run = a_run(counts={"worker": 4}, recovery=RecoveryPolicy(scope="gang")).running()
    run.stopped()
    assert run.exits("worker/0") == []
    assert run.fails("worker/1") == []
    assert run.happens(messages.WorkerLost, address="c") == []
    assert run.happens(events.AgentFailed, address="d", error="it ended.") == ["Finish ok"]
    assert run.state.losses == ()


# What is stale


def test_a_replaced_attempt_is_not_listened_to(a_run):
    run = a_run(recovery=RecoveryPolicy()).running()
    run.exits("worker/0")
    before = run.state
    for kind, more in (
        (messages.Ready, {}),
        (messages.Loaded, {}),
        (messages.Started, {}),
        (events.Progressed, {}),
        (messages.Ended, {}),
        (messages.Failed, {"error": "e", "launching": False}),
        (messages.Exited, {"cause": "c"}),
    ):
        assert run.happens(kind, "worker/0", attempt=0, **more) == []
        assert run.state is before


def test_nothing_happens_to_a_run_that_is_over(a_run):
    run = a_run(counts={"worker": 1}, recovery=RecoveryPolicy()).running()
    run.returns("worker/0")
    before = run.state
    assert before.phase is Phase.OVER
    run.exits("worker/0")
    run.fails("worker/0")
    run.placed()
    run.stopped()
    run.tick(1000)
    run.happens(events.DriverFailed, error="e")
    run.happens(messages.WorkerLost, address="a")
    assert run.state is before
    assert len(run.finishes) == 1


def test_room_for_one_role_does_not_start_a_gang_that_waits(a_run):
    """One role was being replaced when another loss started all again."""
    run = a_run(counts={"chief": 1, "worker": 2}, recovery=RecoveryPolicy()).running()
    run.exits("worker/0")
    run.exits("chief/0", "worker/1")
    assert run.phase is Phase.PLACING
    assert run.placed("worker/0") == []
    assert run.phase is Phase.PLACING
    assert run.placed() == ["StartProcess chief/0#2@a", "StartProcess worker/0#2@b", "StartProcess worker/1#2@c"]


def test_the_state_says_where_it_is(a_run):
    run = a_run(counts={"ps": 1, "worker": 2})
    run.placed()
    run.up("ps/0")
    assert str(run.state) == "launching: 1 ready, 2 starting"


# Whatever happens

KEYS = ["chief/0", "worker/0", "worker/1", "ps/0", "scorer/0"]
COUNTS = {"chief": 1, "worker": 2, "ps": 1, "scorer": 1}


def _of_role(kind: type[events.Event], **more: st.SearchStrategy) -> st.SearchStrategy:
    """An event of any role, in its present attempt, one before or one that never was."""
    fields = {"key": st.sampled_from(KEYS), "lag": st.sampled_from([0, 0, 0, 0, 1, -1]), **more}
    return st.fixed_dictionaries(fields).map(lambda values: (kind, values))


def _of_run(kind: type[events.Event], **more: st.SearchStrategy) -> st.SearchStrategy:
    return st.fixed_dictionaries(more).map(lambda values: (kind, values))


ADDRESSES = st.sampled_from("abcd")
TEXT = st.sampled_from(["", "one", "two"])
HAPPENINGS = st.one_of(
    _of_run(events.Placed, places=st.dictionaries(st.sampled_from(KEYS), ADDRESSES)),
    _of_run(events.Placed, places=st.fixed_dictionaries(dict.fromkeys(KEYS, ADDRESSES))),
    _of_run(events.NoRoom, wanted=TEXT, why=TEXT, change=TEXT),
    _of_role(messages.Ready, pid=st.just(1), peer=TEXT),
    _of_role(messages.Loaded),
    _of_role(messages.Started),
    _of_role(events.Progressed),
    _of_role(messages.Ended),
    _of_role(events.AwaitsClient, awaits=st.booleans()),
    _of_role(messages.Failed, error=TEXT, launching=st.booleans(), unanswered=st.booleans()),
    _of_role(messages.Exited, cause=TEXT),
    _of_run(messages.WorkerLost, address=ADDRESSES),
    _of_run(events.AgentFailed, address=ADDRESSES, error=TEXT),
    _of_run(messages.DataProgressed),
    _of_run(events.DataReady),
    _of_run(messages.DataFailed, error=TEXT),
    _of_run(messages.Stop, reason=TEXT),
    _of_run(events.DriverFailed, error=TEXT),
    _of_run(events.Diagnosed, stalled=st.just(("x",)), silent=st.sampled_from([(), (("worker", 1), ("scorer", 0))])),
    _of_run(events.ClientWaits, waits=st.booleans()),
    _of_run(events.Ticked),
    _of_run(events.Ticked),
)
PLANS = st.fixed_dictionaries(
    {
        "recovery": st.none() | st.builds(RecoveryPolicy, scope=st.sampled_from(["role", "gang"])),
        "with_data": st.sampled_from([frozenset(), frozenset({"worker"})]),
        "agree": st.booleans(),
    }
)
# What ends or mends a run is rare in real ones, so half of them begin with all roles in their functions.
SEQUENCES = st.lists(st.tuples(HAPPENINGS, st.sampled_from([0.0, 0.1, 1.0, 6.0, 70.0, 130.0])), max_size=40)


@settings(max_examples=400, deadline=None)
@given(PLANS, st.booleans(), SEQUENCES)
def test_whatever_happens_a_stop_ends_it_once(a_run, plan, running, sequence):
    run = a_run(counts=COUNTS, **plan)
    if running and not plan["with_data"]:
        run.running()
    for (kind, values), after in sequence:
        more = dict(values)
        key, lag = more.pop("key", ""), more.pop("lag", 0)
        if key:
            more["attempt"] = run[key].attempt - lag
        before = run.state
        run.happens(kind, key, after=after, **more)
        _check(run, before)
    run.stopped()
    for _ in range(4):
        run.tick(1000)
    assert run.phase is Phase.OVER
    assert len(run.finishes) == 1
    last = [todo for _, todo in run.log if todo][-1]
    assert isinstance(last[-1], commands.Finish), "nothing is done after the end"


def _check(run, before):
    """No command goes to an attempt that has been replaced, nor to a role that has no process."""
    for command in run.log[-1][1]:
        if isinstance(command, commands.Tell):
            key = command.to.key
            assert command.to.attempt in (before.roles[key].attempt, run.state.roles[key].attempt)
            assert command.address
            assert run.state.roles[key].phase is not RolePhase.PLACING or isinstance(command.message, messages.Kill)
            if isinstance(command.message, messages.StartProcess):
                assert before.roles[key].phase is RolePhase.PLACING
    alive = set(run.phases.values()) - {RolePhase.RETURNED, RolePhase.GONE}
    assert alive or run.phase is Phase.OVER or run.state.suspicion, "somebody or something is waited for"
    assert run.state.num_restarts <= 3
    assert (run.phase is Phase.OVER) == bool(run.finishes)
    if run.phase is Phase.OVER:
        assert run.finish.verdict in Verdict
