"""Every wait of a run ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_train.run import events, messages
from dask_train.run.deadlines import RENDEZVOUS_MARGIN_S
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import Phase

ROLE = RecoveryPolicy()


def test_roles_that_do_not_start(a_run):
    run = a_run(counts={"ps": 1, "worker": 2}, launch_s=60, recovery=ROLE)
    run.placed()
    run.up("worker/0")
    assert run.tick(59) == []
    assert run.tick(1.1) == ["Kill ps/0#0@a", "Kill worker/0#0@b", "Kill worker/1#0@c"]
    assert run.exits("ps/0", "worker/0", "worker/1") == ["Finish LaunchError"]
    assert run.finish.what == "Only 1 of 3 roles started within 60 s; missing: ps 0 on a; worker 1 on c."
    assert "busy, paused or short of memory" in run.finish.cause
    assert run.finish.change.endswith("or raise train.launch.timeout.")
    assert (run.finish.role, run.finish.rank) == ("ps", 0)


def test_a_launch_is_not_blamed_on_data(a_run):
    run = a_run(launch_s=60, progress_s=10)
    run.placed()
    run.up("worker/0")
    assert run.tick(50) == [], "worker 1 may still be importing its framework"
    run.up("worker/1")
    assert run.phase is Phase.RUNNING


def test_a_replacement_that_does_not_start_is_lost_again(a_run):
    run = a_run(launch_s=60, recovery=RecoveryPolicy(max_restarts=2)).running()
    run.exits("worker/1")
    run.placed("worker/1", on="c")
    for _ in range(60):
        run.happens(events.Progressed, "worker/0", after=0.99)
    assert run.tick(1) == ["Kill worker/1#1@c", "PlaceRoles worker/1"]
    assert run.state.losses[-1] == "worker 1 is lost: it did not start on c within 60 s."
    assert run["worker/1"].attempt == 2


def test_two_replacements_that_do_not_start_where_one_more_may(a_run):
    run = a_run(counts={"worker": 3}, launch_s=60, recovery=RecoveryPolicy(max_restarts=3)).running()
    run.exits("worker/0", "worker/1")
    run.placed("worker/0", "worker/1")
    assert run.tick(61) == [
        "Kill worker/0#1@a",
        "PlaceRoles worker/0",
        "Kill worker/1#1@b",
        "Kill worker/2#0@c",
    ]
    assert run.exits("worker/2") == ["Finish RoleLostError"]
    assert run.finish.what == "worker 1 is lost: it did not start on b within 60 s."


def test_roles_that_do_not_meet(a_run):
    run = a_run(rendezvous_s=30, recovery=ROLE)
    run.placed()
    run.up()
    run.starts("worker/0")
    assert run.tick(30 + RENDEZVOUS_MARGIN_S - 1) == [], "it raises by itself"
    assert run.tick(1.1) == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.exits("worker/0", "worker/1") == ["Finish LaunchError"]
    assert run.finish.what == "worker 1 did not meet the other roles within 30 s."
    assert run.finish.change == "Try dask train doctor, or raise train.rendezvous.timeout."


def test_data_that_does_not_come(a_run):
    run = a_run(with_data=frozenset({"worker"}), launch_s=60, progress_s=120)
    run.placed()
    run.up()
    assert run.tick(119) == []
    run.happens(messages.DataProgressed)
    assert run.tick(119) == []
    run.happens(events.DataReady)
    assert run.tick(119) == []
    run.happens(messages.Loaded, "worker/0")
    assert run.tick(121) == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.exits("worker/0", "worker/1") == ["Finish StalledError"]
    assert run.finish.what == "The data of the run made no progress for 120 s."
    assert "train.progress.timeout" in run.finish.change


def test_a_run_without_progress_is_looked_into_and_ended(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    assert run.tick(100) == []
    run.happens(events.Progressed, "worker/1")
    assert run.tick(119) == []
    assert run.tick(1.1) == ["DiagnoseRoles worker/0 worker/1"]
    assert run.tick(1) == [], "it is being looked into"
    said = run.happens(events.Diagnosed, stalled=("worker 0 (process 7) does not answer: it is stopped by a signal",))
    assert said == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.exits("worker/0", "worker/1") == ["Finish StalledError"]
    assert run.finish.what == (
        "No role made progress for 120 s: worker 0 (process 7) does not answer: it is stopped by a signal."
    )
    assert "train.progress.timeout" in run.finish.change


def test_progress_while_it_is_looked_into(a_run):
    run = a_run(progress_s=120).running()
    assert run.tick(121) == ["DiagnoseRoles worker/0 worker/1"]
    run.happens(events.Progressed, "worker/1")
    assert run.happens(events.Diagnosed, stalled=("x",)) == []
    assert run.phase is Phase.RUNNING
    assert run.tick(119) == []
    assert run.tick(1.1) == ["DiagnoseRoles worker/0 worker/1"]
    run.happens(events.Diagnosed, stalled=())
    run.exits("worker/0", "worker/1")
    assert run.finish.what == "No role made progress for 120 s: all of them answer."


def test_a_look_that_nobody_asked_for(a_run):
    run = a_run(progress_s=120).running()
    assert run.happens(events.Diagnosed, after=500, stalled=("x",)) == []


def test_a_stop_while_it_is_looked_into(a_run):
    run = a_run(progress_s=2, stop_s=60).running()
    run.tick(3)
    run.stopped()
    assert run.happens(events.Diagnosed, after=10, stalled=("x",)) == [], "the roles have their time to stop"
    run.exits("worker/0", "worker/1")
    assert run.finish.verdict == "ok"


def test_all_start_again_while_it_is_looked_into(a_run):
    run = a_run(progress_s=120, recovery=RecoveryPolicy(scope="gang")).running()
    run.tick(121)
    run.exits("worker/0", "worker/1")
    assert run.happens(events.Diagnosed, after=500, stalled=("x",)) == []
    assert run.phase is Phase.PLACING
    run.running()
    assert run.tick(121) == ["DiagnoseRoles worker/0 worker/1"]


def test_a_scorer_that_reports_for_ever_hides_no_stall(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1}, progress_s=120).running()
    run.tick(119)
    run.happens(events.Progressed, "scorer/0")
    assert run.tick(2) == ["DiagnoseRoles worker/0 scorer/0"]


def test_a_worker_that_hangs_is_not_hidden_by_one_that_has_returned(a_run):
    run = a_run(progress_s=120).running()
    run.tick(100)
    run.returns("worker/0")
    assert run.tick(21) == ["DiagnoseRoles worker/1"]


def test_one_worker_of_several_may_work_alone(a_run):
    run = a_run(counts={"worker": 2}, progress_s=120).running()
    for _ in range(10):
        run.happens(events.Progressed, "worker/0", after=100)
        if run.tick(1):  # the other one is looked into, and answers
            assert run.happens(events.Diagnosed, stalled=("worker 1 is waiting",)) == []
    assert run.phase is Phase.RUNNING


def test_a_scorer_that_hangs_at_the_end(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1}, progress_s=120).running()
    run.tick(100)
    run.returns("worker/0")
    assert run.tick(119) == []
    assert run.tick(2) == ["DiagnoseRoles scorer/0"]
    assert run.happens(events.Diagnosed, stalled=("scorer 0 is scoring",)) == ["Kill scorer/0#0@b"]
    assert run.exits("scorer/0") == ["Finish ok"]
    assert run.finish.notes == (
        "scorer 0 had not returned 120 s after the training roles and was ended: scorer 0 is scoring.",
    )


def test_a_scorer_that_goes_on_for_ever_at_the_end(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1, "keeper": 1, "ps": 1}, progress_s=120, stop_s=5).running()
    run.returns("worker/0", "keeper/0")
    for _ in range(12):
        assert run.happens(events.Progressed, "scorer/0", after=9) == []
    assert run.tick(20) == ["DiagnoseRoles scorer/0 ps/0"]
    assert run.happens(events.Diagnosed, stalled=()) == ["Kill scorer/0#0@b"]
    run.exits("scorer/0")
    assert run.tick(5.1) == ["Kill ps/0#0@d"]
    assert run.exits("ps/0") == ["Finish ok"]


@pytest.mark.parametrize("until", ["placing", "starting", "ready", "meeting"])
def test_a_scorer_that_is_not_replaced_in_time_at_the_end(a_run, until):
    run = a_run(counts={"worker": 1, "scorer": 1}, recovery=ROLE, progress_s=120).running()
    run.exits("scorer/0")
    run.returns("worker/0")
    if until != "placing":
        run.placed("scorer/0")
    if until == "meeting":
        run.up("scorer/0")
    run.tick(121)
    said = run.happens(events.Diagnosed, stalled=())
    if until == "placing":
        assert said == ["Free scorer/0", "Finish ok"]
    else:
        assert said == ["Kill scorer/0#1@b"]
        assert run.exits("scorer/0") == ["Finish ok"]
    assert run.finish.notes[0].startswith("scorer 0 had not returned 120 s after the training roles")


def test_a_look_that_was_begun_before_the_end_ends_nobody(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1}, progress_s=120).running()
    assert run.tick(121) == ["DiagnoseRoles worker/0 scorer/0"]
    run.returns("worker/0")
    assert run.happens(events.Diagnosed, stalled=("x",)) == []
    assert run.phase is Phase.COMPLETING


# Waiting for the client


def test_a_role_may_wait_for_a_client_that_does_not_wait_itself(a_run):
    run = a_run(progress_s=120).running()
    run.happens(events.AwaitsClient, "worker/0", awaits=True)
    assert run.tick(100_000) == []
    run.happens(events.ClientWaits, waits=True)
    assert run.tick(119) == []
    assert run.tick(2) == ["DiagnoseRoles worker/0 worker/1"], "nobody is left to get on"


def test_a_role_may_wait_for_the_client_before_it_is_known_to_run(a_run):
    run = a_run(progress_s=120)
    run.placed()
    run.up()
    run.happens(events.AwaitsClient, "worker/0", awaits=True)
    run.starts()
    assert run.tick(1000) == []


def test_a_client_that_waits_now_and_then_is_alive(a_run):
    run = a_run(progress_s=120).running()
    run.happens(events.AwaitsClient, "worker/0", awaits=True)
    for waits in (True, False) * 5:
        run.happens(events.ClientWaits, waits=waits)
        assert run.tick(100) == []


def test_a_value_that_came_is_progress(a_run):
    run = a_run(progress_s=120).running()
    run.happens(events.ClientWaits, waits=True)
    run.happens(events.AwaitsClient, "worker/0", awaits=True)
    run.tick(100)
    run.happens(events.Progressed, "worker/0")
    run.happens(events.AwaitsClient, "worker/0", awaits=True)
    assert run.tick(119) == []


# Agents that do not answer


@pytest.mark.parametrize("scope", ["role", "gang"])
def test_roles_whose_agent_is_silent_are_lost_in_a_stall(a_run, scope):
    run = a_run(progress_s=120, recovery=RecoveryPolicy(scope=scope)).running()
    run.tick(121)
    said = run.happens(events.Diagnosed, stalled=("x",), silent=(("worker", 1),))
    if scope == "role":
        assert said == ["Kill worker/1#0@b", "PlaceRoles worker/1"]
    else:
        assert said == ["Kill worker/1#0@b", "Kill worker/0#0@a"]
        assert run.exits("worker/0") == ["PlaceRoles worker/0 worker/1"]
    assert run.state.losses == (
        "worker 1 on b is lost: the agent there does not answer. Its Dask worker hangs, or its host is cut off.",
    )


@pytest.mark.parametrize("agree", [False, True])
@pytest.mark.parametrize("scope", ["role", "gang"])
def test_the_silent_one_is_lost_when_a_healthy_one_raises_for_want_of_an_answer(a_run, scope, agree):
    run = a_run(recovery=RecoveryPolicy(scope=scope), agree=agree).running()
    assert run.fails("worker/0", "StalledError: no rows.", unanswered=True) == ["DiagnoseRoles worker/1"]
    assert run.tick(2) == []
    said = run.happens(events.Diagnosed, stalled=("x",), silent=(("worker", 1),))
    again = ["PlaceRoles worker/1 worker/0"] if scope == "role" and not agree else ["PlaceRoles worker/0 worker/1"]
    assert said == ["Kill worker/1#0@b", *again]
    assert run.state.losses[0].startswith("worker 1 on b is lost")
    run.placed()
    run.up()
    run.starts()
    assert [run["worker/0"].attempt, run["worker/1"].attempt] == [1, 1]


def test_all_that_raised_for_want_of_an_answer_start_again_with_the_silent_one(a_run):
    run = a_run(counts={"worker": 3}, recovery=RecoveryPolicy()).running()
    run.fails("worker/0", "StalledError: no rows.", unanswered=True)
    assert run.fails("worker/1", "StalledError: no rows.", unanswered=True) == []
    said = run.happens(events.Diagnosed, stalled=("x",), silent=(("worker", 2),))
    assert said == ["Kill worker/2#0@c", "PlaceRoles worker/2 worker/0 worker/1"]


def test_without_recovery_the_silent_one_is_blamed(a_run):
    run = a_run().running()
    run.fails("worker/0", "StalledError: no rows.", unanswered=True)
    assert run.happens(events.Diagnosed, stalled=("x",), silent=(("worker", 1),)) == [
        "Kill worker/1#0@b",
        "Finish RoleLostError",
    ]
    assert (run.finish.role, run.finish.rank) == ("worker", 1)


@pytest.mark.parametrize("told", [True, False])
def test_one_that_raises_for_want_of_an_answer_where_all_answer(a_run, told):
    run = a_run(recovery=RecoveryPolicy(scope="gang")).running()
    run.fails("worker/0", "StalledError: no.", unanswered=True)
    said = run.happens(events.Diagnosed, stalled=()) if told else run.tick(10.1)
    assert said == ["Kill worker/1#0@b"]
    assert run.exits("worker/1") == ["Finish RoleFailedError"]
    assert (run.finish.role, run.finish.rank) == ("worker", 0)


def test_a_wait_for_room_is_no_stall(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    run.exits("worker/1")
    assert run.tick(121) == [], "that wait has a deadline of its own"
    run.placed("worker/1")
    assert run.tick(59) == []


def test_a_run_that_waits_for_room_has_its_deadline_at_the_scheduler(a_run):
    run = a_run(placement_s=60)
    assert run.tick(1000) == []
    assert run.phase is Phase.PLACING


def test_roles_whose_end_nobody_tells(a_run):
    run = a_run(stop_s=5).running()
    run.happens(events.DriverFailed, error="e")
    assert run.tick(4.9) == []
    assert run.tick(0.2) == ["Finish DaskTrainError"]


def with_a_replacement(a_run):
    """A run whose worker 1 was replaced, and whose new process waits for its data."""
    run = a_run(with_data=frozenset({"worker"}), recovery=RecoveryPolicy(), progress_s=50)
    run.happens(events.DataReady)
    run.placed()
    for key in ("worker/0", "worker/1"):
        run.happens(messages.Loaded, key)
    run.up()
    run.starts()
    run.exits("worker/1")
    run.placed("worker/1", on="c")
    run.up("worker/1")
    return run


def test_a_replacement_whose_data_does_not_come_is_lost_again(a_run):
    run = with_a_replacement(a_run)
    run.happens(events.Progressed, "worker/0", after=50)
    assert run.tick(1) == ["Kill worker/1#1@c", "PlaceRoles worker/1"]
    assert run.state.losses[-1] == "worker 1 is lost: its data did not reach it within 50 s."


def test_a_replacement_whose_data_still_arrives_is_waited_for_though_the_others_train(a_run):
    run = with_a_replacement(a_run)
    run.happens(messages.DataProgressed, "worker/1", after=40)
    run.happens(events.Progressed, "worker/0")
    assert run.tick(49) == []
    run.happens(events.Progressed, "worker/0")
    assert run.tick(2) == ["Kill worker/1#1@c", "PlaceRoles worker/1"], "the progress of another is not its own"


FROZEN = {"stalled": ("worker 1 (process 7) does not answer: it is stopped by a signal",), "frozen": (("worker", 1),)}


def test_a_frozen_role_that_can_be_replaced_alone_is_replaced(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    run.tick(121)
    assert run.happens(events.Diagnosed, **FROZEN) == ["Kill worker/1#0@b", "PlaceRoles worker/1"]
    assert run.state.losses == (
        "worker 1 is lost: its process does not answer, and for 120 s no role has made progress.",
    )
    assert run.phase is Phase.RUNNING


def test_with_it_a_role_that_has_waited_for_it_in_vain(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    assert run.happens(
        messages.Failed, "worker/0", error="StalledError: it waits", launching=False, unanswered=True
    ) == ["DiagnoseRoles worker/1"]
    assert run.happens(events.Diagnosed, **FROZEN) == ["Kill worker/1#0@b", "PlaceRoles worker/1 worker/0"]


STOPPED = {**FROZEN, "stopped": (("worker", 1),)}
GANG = RecoveryPolicy(scope="gang")


@pytest.mark.parametrize("settings", [{"recovery": GANG}, {"recovery": ROLE, "agree": True}])
def test_where_a_stopped_role_can_not_be_replaced_alone_all_start_again(a_run, settings):
    run = a_run(progress_s=120, **settings).running()
    run.tick(121)
    assert run.happens(events.Diagnosed, **STOPPED) == ["Kill worker/1#0@b", "Kill worker/0#0@a"]
    run.exits("worker/0", "worker/1")
    assert run.phase is Phase.PLACING
    assert run.state.losses == (
        "worker 1 is lost: its process does not answer, and for 120 s no role has made progress.",
    )


def test_also_if_another_one_has_raised_that_waited_for_it(a_run):
    run = a_run(progress_s=120, recovery=GANG, agree=True).running()
    run.happens(messages.Failed, "worker/0", error="StalledError: it waits", launching=False, unanswered=True)
    run.happens(events.Diagnosed, **STOPPED)
    run.exits("worker/1")
    assert run.phase is Phase.PLACING


IN_PLACE = {"recovery": RecoveryPolicy(scope="in_place"), "in_place": True, "progress_s": 120}


def met(run):
    run.running()
    run.state = replace(run.state, met=True)
    return run


def test_a_stopped_worker_is_ended_and_then_replaced_in_place(a_run):
    run = met(a_run(**IN_PLACE))
    assert run.tick(59) == []
    assert run.tick(2) == ["DiagnoseRoles worker/0 worker/1"]
    assert run.tick(1) == []
    assert run.happens(events.Diagnosed, **STOPPED) == ["Kill worker/1#0@b"]
    assert run.exits("worker/1") == ["PeerLost worker/0#0@a", "PlaceRoles worker/1"]
    why = "its process was stopped by a signal, and no role had made progress for 62.1 s. It was ended."
    assert run.state.losses == (f"worker 1 is lost: {why}",)
    run.placed("worker/1")
    assert not run.state.roles["worker", 1].fenced


def test_one_that_only_works_for_long_is_left_alone(a_run):
    run = met(a_run(**IN_PLACE))
    run.tick(61)
    assert run.happens(events.Diagnosed, **FROZEN) == []
    assert run.tick(50) == [], "it is looked into once"
    run.happens(events.Progressed, "worker/1")
    assert run.tick(61) == ["DiagnoseRoles worker/0 worker/1"]


@pytest.mark.parametrize(
    "settings", [{"recovery": None}, {"recovery": RecoveryPolicy(scope="gang")}, {"recovery": ROLE, "agree": True}]
)
def test_a_frozen_role_that_can_not_be_replaced_alone_ends_the_run(a_run, settings):
    run = a_run(progress_s=120, **settings).running()
    run.tick(121)
    run.happens(events.Diagnosed, **FROZEN)
    run.exits("worker/0", "worker/1")
    assert run.finish.verdict == "StalledError"


@pytest.mark.parametrize("agree", [False, True])
def test_a_frozen_role_is_named_and_not_the_one_that_has_waited_for_it(a_run, agree):
    run = a_run(progress_s=120, recovery=RecoveryPolicy(scope="gang"), agree=agree).running()
    run.happens(messages.Failed, "worker/0", error="StalledError: it waits", launching=False, unanswered=True)
    run.happens(events.Diagnosed, **FROZEN)
    run.exits("worker/1")
    assert run.finish.verdict == "StalledError"
    assert run.finish.what.startswith("No role made progress for 120 s: worker 1 (process 7) does not answer")


def test_who_is_killed_after_a_stop_is_told_of(a_run):
    run = a_run(stop_s=5).running()
    run.stopped()
    run.returns("worker/0")
    assert run.tick(5.1) == ["Kill worker/1#0@b"]
    assert run.state.notes == (
        "worker 1 was killed, and returned nothing: train.stop.timeout (5 s) had passed since the run was stopped.",
    )


def others_go_on(run, seconds):
    """Worker 0 gets on, and worker 1 does not; all that is to be done."""
    return [text for _ in range(seconds) for text in run.happens(events.Progressed, "worker/0", after=1) + run.tick(0)]


def test_a_frozen_role_is_replaced_while_others_go_on(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    assert others_go_on(run, 119) == []
    assert others_go_on(run, 3) == ["DiagnoseRoles worker/0 worker/1"]
    assert run.happens(events.Diagnosed, **FROZEN) == ["Kill worker/1#0@b", "PlaceRoles worker/1"]
    cause = "its process does not answer, and for 120 s it has made no progress, while others have."
    assert run.state.losses == (f"worker 1 is lost: {cause}",)


def test_a_role_whose_agent_is_silent_is_replaced_while_others_go_on(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    others_go_on(run, 122)
    assert run.happens(events.Diagnosed, stalled=(), silent=(("worker", 1),)) == [
        "Kill worker/1#0@b",
        "PlaceRoles worker/1",
    ]


def test_where_it_can_not_be_replaced_the_run_ends_and_names_it(a_run):
    run = a_run(progress_s=120).running()
    others_go_on(run, 122)
    run.happens(events.Diagnosed, **FROZEN)
    run.exits("worker/0", "worker/1")
    assert run.finish.verdict == "StalledError"
    assert run.finish.what.startswith("worker 1 made no progress for 120 s: worker 1 (process 7) does not answer")


def test_a_role_that_works_for_long_and_answers_is_left_and_looked_into_now_and_then(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    assert others_go_on(run, 122) == ["DiagnoseRoles worker/0 worker/1"]
    assert run.happens(events.Diagnosed, stalled=("worker 1 is fitting",)) == []
    assert others_go_on(run, 118) == []
    assert others_go_on(run, 4) == ["DiagnoseRoles worker/0 worker/1"]
    run.happens(events.Progressed, "worker/1")
    assert run.happens(events.Diagnosed, **FROZEN) == [], "it moved while the picture was taken"
    assert run.phase is Phase.RUNNING


def test_a_role_that_awaits_the_client_does_not_hang(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    run.happens(events.AwaitsClient, "worker/1", awaits=True)
    assert others_go_on(run, 130) == []
