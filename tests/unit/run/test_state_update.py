"""One turn of a run, as it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_train.run.commands import Finish, Free, PlaceRoles, Tell, Verdict
from dask_train.run.messages import Kill, RoleProcess, Stop
from dask_train.run.state import Phase, Role, RolePhase, RunPlan, RunState, Suspicion
from dask_train.run.state_update import StateUpdate

PLAN = RunPlan(counts={"worker": 2, "scorer": 1}, training=frozenset({"worker"}), placement_s=7.0)
A, B, SCORER = ("worker", 0), ("worker", 1), ("scorer", 0)


def update(phase=Phase.RUNNING, time=10.0, roles=None, **more):
    roles = roles or {key: Role(phase=RolePhase.RUNNING, address="d", attempt=1) for key in PLAN.role_keys()}
    return StateUpdate(RunState(plan=PLAN, phase=phase, roles=roles, **more), time)


def test_nothing_changes_what_was():
    before = RunState(plan=PLAN, roles={A: Role()}, losses=("one",), num_restarts=1, met=True, client_waits=3.0)
    turn = StateUpdate(before, 5.0)
    turn.move(A, RolePhase.STARTING)
    turn.note("something")
    after, todo = turn.result()
    assert before.roles[A].phase is RolePhase.PLACING
    assert todo == ()
    assert after == replace(before, roles={A: Role(phase=RolePhase.STARTING, since=5.0)}, notes=("something",))


def test_commands_are_for_the_present_attempt_and_in_order():
    turn = update()
    turn.tell(B, Stop(reason="enough"))
    turn.do(Free(roles=(A,)))
    _, todo = turn.result()
    assert todo == (
        Tell(to=RoleProcess("worker", 1, 1), address="d", message=Stop(reason="enough")),
        Free(roles=(A,)),
    )


def test_a_next_attempt_has_nothing_of_the_last_but_its_peers_address():
    turn = update(
        roles={
            A: Role(
                phase=RolePhase.GONE,
                attempt=3,
                address="d",
                peer="h:1",
                pid=9,
                loaded=True,
                awaits_client=True,
                meets_at="h",
            )
        }
    )
    turn.place_anew(A)
    assert turn.roles[A] == Role(phase=RolePhase.PLACING, attempt=4, since=10.0, peer="h:1", loaded=True, alone=True)


def test_a_process_is_killed_once_and_one_that_has_ended_never():
    phases = {A: RolePhase.RUNNING, B: RolePhase.RETURNED, SCORER: RolePhase.KILLED}
    turn = update(roles={key: Role(phase=phase) for key, phase in phases.items()})
    for _ in range(2):
        for key in phases:
            turn.kill(key)
    _, todo = turn.result()
    assert todo == (Tell(to=RoleProcess("worker", 0, 0), address="", message=Kill()),)
    assert turn.roles[A].phase is RolePhase.KILLED


def test_room_that_is_waited_for_is_given_back():
    turn = update(roles={A: Role(phase=RolePhase.PLACING), B: Role(phase=RolePhase.STARTING)})
    turn.forget(A)
    turn.forget(B)
    _, todo = turn.result()
    assert todo == (Free(roles=(A,)), Tell(to=RoleProcess("worker", 1, 0), address="", message=Kill()))
    assert (turn.roles[A].phase, turn.roles[B].phase) == (RolePhase.GONE, RolePhase.KILLED)


# Progress


def test_a_scorers_progress_counts_when_no_training_role_is_alive():
    roles = {
        A: Role(phase=RolePhase.RUNNING, progressed=3.0),
        B: Role(phase=RolePhase.RETURNED, progressed=9.0),
        SCORER: Role(phase=RolePhase.RUNNING, progressed=8.0),
    }
    assert update(roles=roles).last_progress() == 3.0
    assert update(roles={**roles, A: Role(phase=RolePhase.GONE, progressed=3.0)}).last_progress() == 8.0
    assert update(roles=roles, since=4.0).last_progress() == 4.0


@pytest.mark.parametrize(("client_waits", "last"), [(None, 10.0), (6.0, 6.0), (1.0, 2.0)])
def test_a_wait_for_the_client_is_a_stall_only_while_that_waits_for_the_run(client_waits, last):
    roles = {A: Role(phase=RolePhase.RUNNING, progressed=2.0, awaits_client=True)}
    assert update(roles=roles, client_waits=client_waits).last_progress() == last


def test_progress_is_the_roles_and_the_runs():
    turn = update()
    turn.made_progress(A)
    assert (turn.roles[A].progressed, turn.roles[B].progressed, turn.progressed) == (10.0, 0.0, 10.0)


# The end

LOST, FAILED = Finish(verdict=Verdict.ROLE_LOST, what="lost"), Finish(verdict=Verdict.ROLE_FAILED, what="failed")


def test_what_was_decided_first_holds():
    turn = update(suspicion=Suspicion(key=A, error="e", launching=False, until=99.0))
    turn.end(LOST)
    turn.end(FAILED)
    assert (turn.ending, turn.phase, turn.since, turn.suspicion) == (LOST, Phase.ENDING, 10.0, None)
    assert {role.phase for role in turn.roles.values()} == {RolePhase.KILLED}


def test_what_was_trained_is_not_taken_back():
    turn = update(Phase.COMPLETING)
    turn.end(FAILED)
    assert (turn.ending, turn.notes) == (None, ("failed",))


def test_it_is_over_when_all_processes_are_gone_and_once():
    turn = update(Phase.ENDING, ending=LOST, notes=("a note",))
    turn.finish_when_gone()
    assert turn.phase is Phase.ENDING
    for key in turn.roles:
        turn.move(key, RolePhase.GONE)
    turn.finish_when_gone()
    turn.finish_when_gone()
    after, todo = turn.result()
    assert (after.phase, todo) == (Phase.OVER, (replace(LOST, notes=("a note",)),))


def test_an_exception_that_settles_is_waited_for():
    roles = {A: Role(phase=RolePhase.GONE)}
    turn = update(roles=roles, suspicion=Suspicion(key=A, error="e", launching=False, until=99.0))
    turn.finish_when_gone()
    assert turn.phase is Phase.RUNNING


def test_all_are_placed_again_when_all_are_gone():
    turn = update(
        Phase.RESTARTING, roles={key: Role(phase=RolePhase.GONE, attempt=1) for key in PLAN.role_keys()}, met=True
    )
    turn.finish_when_gone()
    after, todo = turn.result()
    assert todo == (PlaceRoles(roles=PLAN.role_keys(), timeout_s=7.0),)
    assert (after.phase, after.met) == (Phase.PLACING, False)
    assert {(role.phase, role.attempt) for role in after.roles.values()} == {(RolePhase.PLACING, 2)}
