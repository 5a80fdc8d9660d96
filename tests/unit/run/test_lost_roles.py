"""What becomes of a run when roles raise, or their processes, agents or Dask workers are gone."""

from __future__ import annotations

import pytest

from dask_train.run import events, messages
from dask_train.run.lost_roles import SETTLE_S
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import Phase, RolePhase

ROLE = RecoveryPolicy(scope="role")
GANG = RecoveryPolicy(scope="gang")
RETRY = RecoveryPolicy(scope="gang", retry_errors=True)

# One role is replaced


def test_only_the_lost_role_starts_again(a_run):
    run = a_run(counts={"ps": 1, "worker": 3}, recovery=ROLE).running()
    others = {key: run[key] for key in ("ps/0", "worker/0", "worker/2")}
    said = run.exits("worker/1", cause="its process 7 was killed by SIGKILL.")
    said += run.placed("worker/1", on="e")
    said += run.up("worker/1")
    said += run.starts("worker/1")
    assert said == ["PlaceRoles worker/1", "StartProcess worker/1#1@e", "Go worker/1#1@e"]
    assert {key: run[key] for key in others} == others, "untouched"
    assert (run["worker/1"].phase, run["worker/1"].address) == (RolePhase.RUNNING, "e")
    assert run.state.losses == ("worker 1 is lost: its process 7 was killed by SIGKILL.",)
    assert run.phase is Phase.RUNNING


def test_its_room_is_waited_for_as_long_as_that_of_the_run(a_run):
    run = a_run(recovery=ROLE, placement_s=33).running()
    run.exits("worker/1")
    (place,) = run.log[-1][1]
    assert (place.roles, place.timeout_s) == ((("worker", 1),), 33)


def test_it_is_given_its_data_again(a_run):
    run = a_run(recovery=ROLE, with_data=frozenset({"worker"}))
    run.happens(events.DataReady)
    run.placed()
    run.happens(messages.Loaded, "worker/0")
    run.happens(messages.Loaded, "worker/1")
    run.up()
    run.starts()
    run.exits("worker/1")
    assert run.placed("worker/1", on="c") == ["StartProcess worker/1#1@c", "Load worker/1#1@c"]
    assert run.up("worker/1") == []
    assert run.happens(messages.Loaded, "worker/1") == ["Go worker/1#1@c"]


def test_a_role_lost_while_all_launch_is_replaced_and_waited_for(a_run):
    run = a_run(recovery=ROLE)
    run.placed()
    run.up("worker/0")
    assert run.exits("worker/1") == ["PlaceRoles worker/1"]
    assert run.phase is Phase.LAUNCHING
    assert run.placed("worker/1", on="c") == ["StartProcess worker/1#1@c"]
    assert run.up("worker/1") == ["Go worker/0#0@a", "Go worker/1#1@c"]


def test_a_dask_worker_with_two_roles_counts_once(a_run):
    run = a_run(counts={"worker": 3}, recovery=ROLE)
    run.happens(events.Placed, places={"worker/0": "a", "worker/1": "a", "worker/2": "b"})
    run.up()
    run.starts()
    assert run.happens(messages.WorkerLost, address="a") == ["PlaceRoles worker/0 worker/1"]
    assert run.happens(messages.WorkerLost, address="a") == []
    assert run.state.num_restarts == 1
    assert run.state.losses == ("worker 0, worker 1 are lost: the Dask worker a left the cluster.",)
    run.placed("worker/0", "worker/1", on="b")
    run.up("worker/0", "worker/1")
    assert run.happens(messages.WorkerLost, address="c") == [], "no role of the run is there"


def test_results_of_a_dask_worker_that_is_lost_later_stay(a_run):
    run = a_run(recovery=ROLE).running()
    run.returns("worker/0")
    assert run.happens(messages.WorkerLost, address="a") == []
    assert run["worker/0"].phase is RolePhase.RETURNED
    assert run.returns("worker/1") == ["Finish ok"]


def test_no_room_for_a_replacement(a_run):
    run = a_run(recovery=ROLE).running()
    run.exits("worker/1", cause="one.")
    run.placed("worker/1")
    run.exits("worker/1", cause="two.")
    assert run.happens(events.NoRoom, wanted="w", why="0 of 2 threads are free.", change="Wait.") == [
        "Kill worker/0#0@a"
    ]
    assert run.exits("worker/0") == ["Finish RoleLostError"]
    assert run.finish.what == "worker 1 is lost: two. There is no room to replace it: 0 of 2 threads are free."
    assert run.finish.cause == "Attempt 0: worker 1 is lost: one."
    assert run.finish.change == "Wait."


# All start again


def test_all_start_again_when_all_are_gone(a_run):
    run = a_run(counts={"ps": 1, "worker": 2}, recovery=GANG, placement_s=44).running()
    assert run.exits("worker/0") == ["Kill ps/0#0@a", "Kill worker/1#0@c"]
    assert run.phase is Phase.RESTARTING
    assert run.exits("ps/0") == []
    assert run.exits("worker/1") == ["PlaceRoles ps/0 worker/0 worker/1"], "in place of the room that they had"
    assert run.log[-1][1][0].timeout_s == 44
    assert run.phase is Phase.PLACING
    assert run.placed() == ["StartProcess ps/0#1@a", "StartProcess worker/0#1@b", "StartProcess worker/1#1@c"]
    assert run.up() == ["Go ps/0#1@a", "Go worker/0#1@b", "Go worker/1#1@c"]
    run.starts()
    run.returns("worker/0", "worker/1")
    assert run.returns("ps/0") == ["Finish ok"]


def test_those_that_had_returned_start_again_too(a_run):
    run = a_run(recovery=GANG).running()
    run.returns("worker/1")
    assert run.exits("worker/0") == ["Kill worker/1#0@b", "PlaceRoles worker/0 worker/1"], "its process may have stayed"
    assert [run[key].attempt for key in ("worker/0", "worker/1")] == [1, 1]


def test_a_role_that_does_not_say_that_it_is_gone_is_waited_for_so_long(a_run):
    run = a_run(recovery=GANG, stop_s=5).running()
    run.exits("worker/0")
    assert run.tick(4.9) == []
    assert run.tick(0.2) == ["PlaceRoles worker/0 worker/1"]


def test_what_cannot_be_replaced_alone_takes_all_with_it(a_run):
    run = a_run(counts={"chief": 1, "worker": 1}, recovery=ROLE).running()
    assert run.exits("worker/0") == ["PlaceRoles worker/0"]
    assert run["worker/0"].alone
    run.placed("worker/0")
    run.up("worker/0")
    assert run.exits("chief/0") == ["Kill worker/0#1@b"]
    assert run.exits("worker/0") == ["PlaceRoles chief/0 worker/0"]
    assert (run["chief/0"].attempt, run["worker/0"].attempt) == (2, 2), "one number for a start of all"
    assert not run["worker/0"].alone


def test_a_dask_worker_with_a_role_that_cannot_be_replaced_alone(a_run):
    run = a_run(counts={"chief": 1, "worker": 2}, recovery=ROLE)
    run.happens(events.Placed, places={"chief/0": "b", "worker/0": "b", "worker/1": "c"})
    run.up()
    run.starts()
    assert run.happens(messages.WorkerLost, address="b") == ["Kill worker/1#0@c"]


def test_roles_that_wait_for_each_other_start_again_together(a_run):
    """Whatever the framework says of one: the loss is an exception in the others."""
    run = a_run(counts={"worker": 2, "scorer": 1}, recovery=ROLE, agree=True).running()
    assert run.exits("scorer/0") == ["PlaceRoles scorer/0"]
    run.placed("scorer/0")
    assert run.exits("worker/0") == ["Kill worker/1#0@b", "Kill scorer/0#1@c"]
    assert run.fails("worker/1") == [], "an echo"
    assert run.exits("scorer/0") == ["PlaceRoles worker/0 worker/1 scorer/0"]


def test_a_role_that_waits_for_room_starts_again_with_all(a_run):
    run = a_run(counts={"chief": 1, "worker": 2}, recovery=ROLE).running()
    assert run.exits("worker/0") == ["PlaceRoles worker/0"]
    assert run.exits("chief/0") == ["Kill worker/1#0@c"]
    assert run.happens(events.NoRoom, wanted="w", why="y", change="c") == [], "all wait for room soon"
    assert run.placed("worker/0") == ["Free worker/0"]
    assert run.exits("worker/1") == ["PlaceRoles chief/0 worker/0 worker/1"]


# How often


@pytest.mark.parametrize("scope", ["role", "gang"])
def test_the_last_error_tells_of_every_attempt(a_run, scope):
    run = a_run(recovery=RecoveryPolicy(scope=scope, max_restarts=2)).running()
    for number in range(2):
        run.exits("worker/0", cause=f"cause {number}.")
        if scope == "gang":
            run.exits("worker/1")
            run.running()
        else:
            run.placed("worker/0")
            run.up("worker/0")
            run.starts("worker/0")
    assert run.exits("worker/0", cause="cause 2.") == [f"Kill worker/1#{2 if scope == 'gang' else 0}@b"]
    assert run.exits("worker/1") == ["Finish RoleLostError"]
    assert run.finish.what == "worker 0 is lost: cause 2."
    assert run.finish.cause == (
        "The run had been mended 2 times before. "
        "Attempt 0: worker 0 is lost: cause 0. Attempt 1: worker 0 is lost: cause 1."
    )
    assert "raise max_restarts of a dask_train.RecoveryPolicy" in run.finish.change
    assert (run.finish.role, run.finish.rank) == ("worker", 0)
    assert len(run.state.losses) == 3


def test_without_recovery_the_first_loss_ends_it(a_run):
    run = a_run().running()
    assert run.exits("worker/0", cause="it fell.") == ["Kill worker/1#0@b"]
    assert run.exits("worker/1") == ["Finish RoleLostError"]
    assert (run.finish.what, run.finish.cause) == ("worker 0 is lost: it fell.", "")
    assert "pass recovery=" in run.finish.change


# Exceptions


def test_an_exception_ends_it(a_run):
    run = a_run(recovery=ROLE).running()
    assert run.fails("worker/1", "ValueError: no such column.") == ["Kill worker/0#0@a"]
    assert run.exits("worker/1") == [], "it had said so"
    assert run.exits("worker/0") == ["Finish RoleFailedError"]
    assert run.finish.what == "worker 1 raised ValueError: no such column."
    assert (run.finish.cause, run.finish.change) == ("", "")
    assert (run.finish.role, run.finish.rank) == ("worker", 1)


@pytest.mark.parametrize("scope", ["role", "gang"])
def test_an_exception_may_count_as_a_loss(a_run, scope):
    run = a_run(recovery=RecoveryPolicy(scope=scope, retry_errors=True, max_restarts=1)).running()
    if scope == "gang":
        assert run.fails("worker/1", "E: one.") == ["Kill worker/0#0@a"]
        run.exits("worker/0")
        run.running()
    else:
        assert run.fails("worker/1", "E: one.") == ["PlaceRoles worker/1"]
        run.placed("worker/1")
        run.up("worker/1")
    run.fails("worker/1", "E: two.")
    assert run.exits("worker/0") == ["Finish RoleFailedError"]
    assert run.finish.what == "worker 1 raised E: two."
    assert run.finish.cause == "The run had been mended 1 times before. Attempt 0: worker 1 raised E: one."


def test_where_roles_wait_for_each_other_an_exception_settles_first(a_run):
    run = a_run(recovery=GANG, agree=True).running()
    assert run.fails("worker/1", "RuntimeError: connection closed by peer.") == []
    assert run.tick(SETTLE_S - 0.1) == []
    assert run.tick(0.1) == ["Kill worker/0#0@a"], "no loss was told of: it was its own"
    assert run.exits("worker/0") == ["Finish RoleFailedError"]


@pytest.mark.parametrize("loss", ["exited", "worker lost", "agent failed"])
def test_an_exception_before_a_loss_is_its_echo(a_run, loss):
    run = a_run(counts={"worker": 3}, recovery=GANG, agree=True).running()
    run.fails("worker/1", "RuntimeError: connection closed by peer.")
    if loss == "exited":
        said = run.exits("worker/0", cause="it was killed.")
    elif loss == "worker lost":
        said = run.happens(messages.WorkerLost, address="a")
    else:
        said = run.happens(events.AgentFailed, address="a", error="it ended.")
    assert said == ["Kill worker/2#0@c"]
    assert run.fails("worker/2", "RuntimeError: connection closed by peer.") == [
        "PlaceRoles worker/0 worker/1 worker/2"
    ]
    assert run.state.num_restarts == 1
    assert run.state.losses[0].startswith("worker 0")
    assert run.tick(SETTLE_S) == []


def test_an_echo_where_nothing_is_mended_does_not_hide_the_loss(a_run):
    run = a_run(agree=True).running()
    run.fails("worker/1", "RuntimeError: connection closed by peer.")
    assert run.exits("worker/0", cause="it was killed.") == ["Finish RoleLostError"]
    assert run.finish.what == "worker 0 is lost: it was killed."


def test_several_exceptions_are_one_and_the_first_is_to_blame(a_run):
    run = a_run(agree=True, recovery=RETRY).running()
    run.fails("worker/1", "E: first.")
    run.fails("worker/0", "E: second.")
    assert run.tick(SETTLE_S) == ["PlaceRoles worker/0 worker/1"]
    assert run.state.num_restarts == 1
    assert run.state.losses == ("worker 1 raised E: first.",)


def test_several_that_raise_beside_the_training_are_replaced_together(a_run):
    policy = RecoveryPolicy(retry_errors=True)
    run = a_run(counts={"worker": 2, "scorer": 2}, agree=True, recovery=policy).running()
    run.fails("scorer/1", "E: first.")
    run.fails("scorer/0", "E: second.")
    assert run.tick(SETTLE_S) == ["PlaceRoles scorer/0 scorer/1"]


def test_all_have_returned_or_raised_and_it_still_settles(a_run):
    run = a_run(agree=True).running()
    run.returns("worker/0")
    assert run.fails("worker/1", "E: own.") == []
    assert run.phase is Phase.RUNNING
    assert run.tick(SETTLE_S) == ["Finish RoleFailedError"]


def test_the_loss_of_another_role_while_an_exception_settles_is_mended_beside_it(a_run):
    run = a_run(counts={"worker": 2, "scorer": 1}, agree=True, recovery=ROLE).running()
    run.fails("worker/1", "E: own.")
    assert run.exits("scorer/0") == ["PlaceRoles scorer/0"]
    assert run.tick(SETTLE_S) == ["Kill worker/0#0@a"]
    assert run.exits("worker/0") == ["Finish RoleFailedError"]
    assert run.finish.what == "worker 1 raised E: own."


def test_a_stop_while_an_exception_settles(a_run):
    run = a_run(agree=True).running()
    run.fails("worker/1")
    assert run.stopped() == ["Stop worker/0#0@a"]
    assert run.tick(SETTLE_S) == []
    assert run.returns("worker/0") == ["Finish ok"]


def test_an_exception_is_told_once(a_run):
    run = a_run().running()
    run.returns("worker/0")
    assert run.fails("worker/0") == []
    assert run.returns("worker/1") == ["Finish ok"]


# Launch errors


def test_a_role_that_cannot_start_ends_it(a_run):
    run = a_run(recovery=RETRY)
    run.placed()
    said = run.fails("worker/1", "ModuleNotFoundError: No module named 'mine'.", launching=True)
    assert said == ["Kill worker/0#0@a"]
    assert run.exits("worker/0") == ["Finish LaunchError"]
    assert run.finish.what == "worker 1 could not start: ModuleNotFoundError: No module named 'mine'."
    assert (run.finish.role, run.finish.rank) == ("worker", 1)


def test_a_role_that_fails_to_meet_the_others_may_be_the_echo_of_a_loss(a_run):
    run = a_run(agree=True, recovery=GANG)
    run.placed()
    run.up()
    assert run.fails("worker/1", "RuntimeError: no peer.", launching=True) == []
    assert run.exits("worker/0") == ["PlaceRoles worker/0 worker/1"]


def test_an_agent_that_cannot_start_ends_it(a_run):
    run = a_run(counts={"worker": 3}, recovery=GANG)
    run.happens(events.Placed, places={"worker/0": "a", "worker/1": "a", "worker/2": "b"})
    assert run.happens(events.AgentFailed, address="c", error="e.") == []
    said = run.happens(events.AgentFailed, address="a", error="Python 3.12 there and 3.11 here.")
    assert said == ["Kill worker/2#0@b"]
    assert run.exits("worker/2") == ["Finish LaunchError"]
    assert run.finish.what == "No role can start on a: Python 3.12 there and 3.11 here."


def test_an_agent_that_ends_later_has_lost_its_roles(a_run):
    run = a_run(recovery=ROLE).running()
    assert run.happens(events.AgentFailed, address="a", error="it was cancelled.") == ["PlaceRoles worker/0"]
    assert run.state.losses == ("worker 0: the agent on a has ended: it was cancelled.",)


def test_what_had_returned_there_stays(a_run):
    run = a_run(counts={"worker": 3}, recovery=ROLE)
    run.happens(events.Placed, places={"worker/0": "a", "worker/1": "a", "worker/2": "b"})
    run.up()
    run.starts()
    run.returns("worker/0")
    assert run.happens(events.AgentFailed, address="a", error="e.") == ["PlaceRoles worker/1"]


def test_an_agent_that_ends_while_its_roles_are_killed(a_run):
    run = a_run(recovery=GANG).running()
    run.exits("worker/1")
    assert run.happens(events.AgentFailed, address="a", error="e.") == ["PlaceRoles worker/0 worker/1"]
    assert run.state.num_restarts == 1


def test_a_dask_worker_that_leaves_while_its_roles_are_killed(a_run):
    run = a_run(recovery=GANG).running()
    run.exits("worker/1")
    assert run.happens(messages.WorkerLost, address="a") == ["PlaceRoles worker/0 worker/1"]
    assert run.state.num_restarts == 1


def test_roles_that_cannot_meet_are_a_launch_that_failed(a_run):
    run = a_run(agree=True)
    run.placed()
    run.up()
    assert run.fails("worker/1", "LaunchError: nobody came.", launching=True) == []
    said = run.tick(SETTLE_S)
    assert said == ["Kill worker/0#0@a"]
    run.exits("worker/0")
    assert (run.finish.verdict, run.finish.what) == (
        "LaunchError",
        "worker 1 could not start: LaunchError: nobody came.",
    )


def test_an_agent_that_cannot_start_a_replacement_is_another_loss(a_run):
    run = a_run(recovery=ROLE).running()
    run.exits("worker/1")
    run.placed("worker/1", on="c")
    assert run.happens(events.AgentFailed, address="c", error="another version.") == ["PlaceRoles worker/1"]
    assert (run.phase, run["worker/1"].attempt) == (Phase.RUNNING, 2)


def test_a_service_that_raises_when_nobody_needs_it_any_more(a_run):
    run = a_run(counts={"ps": 1, "worker": 1}).running()
    run.returns("worker/0")
    assert run.phase is Phase.COMPLETING
    assert run.fails("ps/0") == ["Finish ok"]


# Training roles that do something together when they come to it


def meets(run, key):
    return run.happens(messages.Meets, key, address=f"at {key}")


def test_training_roles_are_told_where_all_are_when_all_wait(a_run):
    run = a_run(counts={"worker": 2, "chief": 1, "scorer": 1}, recovery=ROLE).running()
    assert meets(run, "worker/1") == meets(run, "chief/0") == []
    assert meets(run, "worker/0") == ["Met chief/0#0@c", "Met worker/0#0@a", "Met worker/1#0@b"]
    assert {told.message.addresses for told in run.log[-1][1]} == {("at chief/0", "at worker/0", "at worker/1")}


def test_one_lost_before_they_have_met_is_replaced_alone(a_run):
    run = a_run(recovery=ROLE).running()
    meets(run, "worker/0")
    assert run.exits("worker/1") == ["PlaceRoles worker/1"]
    run.placed("worker/1", on="c")
    run.up("worker/1")
    run.starts("worker/1")
    assert meets(run, "worker/1") == ["Met worker/0#0@a", "Met worker/1#1@c"]


def test_one_that_has_met_the_others_is_lost_with_all_of_them(a_run):
    run = a_run(recovery=ROLE).running()
    for key in ("worker/0", "worker/1"):
        meets(run, key)
    assert run.fails("worker/0", "StalledError: worker 1 is gone.") == [], "it may be an echo"
    assert run.exits("worker/1") == ["PlaceRoles worker/0 worker/1"], "all start again"
    run.placed()
    run.up()
    run.starts()
    assert run.exits("worker/1") == ["PlaceRoles worker/1"], "they have not met in this attempt"


@pytest.mark.parametrize("returns_first", [True, False])
def test_nobody_waits_for_one_that_has_returned(a_run, returns_first):
    run = a_run(counts={"worker": 3}).running()
    said = meets(run, "worker/0") if not returns_first else []
    said += run.returns("worker/1")
    said += meets(run, "worker/0") if returns_first else []
    assert said == ["Met worker/0#0@a"]
    (told,) = run.log[-1][1]
    assert told.message.error == "worker 1 has returned, and takes part in no collective call any more"


# Training roles that go on in place of those that are lost

IN_PLACE = {"counts": {"worker": 3}, "agree": True, "in_place": True, "recovery": RecoveryPolicy(scope="in_place")}


def meets_on(run, *hosts):
    """All workers wait for each other, on these hosts."""
    return [
        text
        for rank, host in enumerate(hosts)
        for text in run.happens(messages.Meets, f"worker/{rank}", address=f"{host}:{rank}")
    ]


@pytest.mark.parametrize("host", ["a", "d"])
def test_those_who_go_on_in_place_are_told_of_a_loss_and_where_its_successor_is(a_run, host):
    run = a_run(**IN_PLACE).running()
    meets_on(run, "a", "a", host)
    assert {told.message.attempts for told in run.log[-1][1]} == {(0, 0, 0)}
    assert run.exits("worker/1") == ["PeerLost worker/0#0@a", "PeerLost worker/2#0@c", "PlaceRoles worker/1"]
    assert {(told.message.peer, told.message.lost_attempt) for told in run.log[-1][1][:2]} == {(1, 0)}
    run.placed("worker/1", on="b")
    run.up("worker/1")
    run.starts("worker/1")
    assert meets_on(run, "a", "a", "a") == ["Met worker/0#0@a", "Met worker/1#1@b", "Met worker/2#0@c"]
    assert {told.message.attempts for told in run.log[-1][1]} == {(0, 1, 0)}


def test_all_roles_of_a_dask_worker_that_is_lost_are_replaced(a_run):
    run = a_run(**IN_PLACE)
    run.happens(events.Placed, places={"worker/0": "a", "worker/1": "b", "worker/2": "b"})
    run.up()
    run.starts()
    meets_on(run, "a", "a", "a")
    said = run.happens(messages.WorkerLost, address="b")
    assert said == ["PeerLost worker/0#0@a"] * 2 + ["PlaceRoles worker/1 worker/2"]
    assert (run.phase, run.state.num_restarts) == (Phase.RUNNING, 1)


def test_those_whose_dask_worker_leaves_in_order_are_replaced_and_no_policy_counts_that(a_run):
    run = a_run(**{**IN_PLACE, "recovery": RecoveryPolicy(scope="in_place", max_restarts=1)}).running()
    meets_on(run, "a", "a", "a")
    for attempt in range(2):
        said = run.happens(messages.Exited, "worker/1", cause="its Dask worker leaves.", leaves=True)
        assert said[-1] == "PlaceRoles worker/1"
        run.placed("worker/1", on="b")
        run.up("worker/1")
        run.starts("worker/1")
        meets_on(run, "a", "a", "a")
        assert run["worker/1"].attempt == attempt + 1
    assert (run.state.num_restarts, run.state.num_left) == (2, 2)
    assert run.exits("worker/2")[-1] == "PlaceRoles worker/2"
    run.exits("worker/0")
    assert run.phase is Phase.ENDING


def test_another_loss_while_they_meet_again_is_one_more_replacement(a_run):
    run = a_run(**IN_PLACE).running()
    meets_on(run, "a", "a", "a")
    run.exits("worker/1")
    assert run.exits("worker/2") == ["PeerLost worker/0#0@a", "PlaceRoles worker/2"]
    assert (run.phase, run.state.num_restarts) == (Phase.RUNNING, 2)


@pytest.mark.parametrize(
    "happens",
    [
        lambda run: run.exits("worker/1"),  # they have not met
        lambda run: (meets_on(run, "a", "a", "a"), run.returns("worker/0"), run.exits("worker/1"))[-1],
        lambda run: meets_on(run, "a", "a", "a") and run.happens(messages.CannotGoOn, "worker/0", why="it is so"),
    ],
    ids=["not met", "one has returned", "another can't follow"],
)
def test_all_start_again_where_there_is_a_doubt(a_run, happens):
    run = a_run(**IN_PLACE).running()
    assert not [text for text in happens(run) if text.startswith("PeerLost")]
    assert (run.phase, run.state.num_restarts) == (Phase.RESTARTING, 1)


def test_who_asks_for_a_restart_says_why(a_run):
    run = a_run(**IN_PLACE).running()
    meets_on(run, "a", "a", "a")
    run.happens(messages.CannotGoOn, "worker/2", why="there is no mirror")
    assert run.state.losses == ("worker 2 could not continue in place: there is no mirror.",)
    assert run.happens(messages.CannotGoOn, "worker/1", why="there is no mirror") == [], "they are being killed"


@pytest.mark.parametrize("needs_agents", [False, True])
def test_a_lost_dask_worker_is_no_loss_in_place_where_its_agent_had_to_tell_of_rows(a_run, needs_agents):
    run = a_run(**IN_PLACE, needs_agents=needs_agents).running()
    meets_on(run, "a", "a", "a")
    commands = run.happens(messages.WorkerLost, address="c")
    assert any(command.startswith("Kill") for command in commands) is needs_agents


def test_roles_that_raise_or_are_lost_after_a_stop_are_noted(a_run):
    run = a_run(counts={"worker": 3, "ps": 1}).running()
    run.stopped("enough")
    run.fails("ps/0", "ValueError: no worker.")
    run.fails("worker/0", "OSError: no space.")
    run.exits("worker/0", "worker/1")
    run.returns("worker/2")
    assert run.finish.what == "enough"
    assert run.finish.notes == (
        "After the run was stopped: worker 0 raised OSError: no space.",
        "After the run was stopped: worker 1 is lost: it was killed.",
    )


def test_what_was_ended_by_a_stop_is_not_noted(a_run):
    run = a_run()
    run.placed()
    run.stopped("enough")
    run.exits("worker/0", "worker/1")
    assert run.finish.notes == ()
