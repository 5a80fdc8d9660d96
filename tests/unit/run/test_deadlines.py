"""Every wait of a run ends."""

from __future__ import annotations

from dask_train.run import events
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
    assert run.tick(1) == ["Kill worker/1#1@c", "Place worker/1"]
    assert run.state.losses[-1] == "worker 1 is lost: it did not start on c within 60 s."
    assert run["worker/1"].attempt == 2


def test_two_replacements_that_do_not_start_where_one_more_may(a_run):
    run = a_run(counts={"worker": 3}, launch_s=60, recovery=RecoveryPolicy(max_restarts=3)).running()
    run.exits("worker/0", "worker/1")
    run.placed("worker/0", "worker/1")
    assert run.tick(61) == ["Kill worker/0#1@a", "Place worker/0", "Kill worker/1#1@b", "Kill worker/2#0@c"]
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
    run.happens(events.DataProgressed)
    assert run.tick(119) == []
    run.happens(events.DataReady)
    assert run.tick(119) == []
    run.happens(events.Loaded, "worker/0")
    assert run.tick(121) == ["Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert run.exits("worker/0", "worker/1") == ["Finish StalledError"]
    assert run.finish.what == "The data of the run made no progress for 120 s."
    assert "train.progress.timeout" in run.finish.change


def test_a_run_without_progress_is_looked_into_and_ended(a_run):
    run = a_run(progress_s=120, recovery=ROLE).running()
    assert run.tick(100) == []
    run.happens(events.Progressed, "worker/1")
    assert run.tick(119) == []
    assert run.tick(1.1) == ["Diagnose worker/0 worker/1"]
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
    assert run.tick(121) == ["Diagnose worker/0 worker/1"]
    run.happens(events.Progressed, "worker/1")
    assert run.happens(events.Diagnosed, stalled=("x",)) == []
    assert run.phase is Phase.RUNNING
    assert run.tick(119) == []
    assert run.tick(1.1) == ["Diagnose worker/0 worker/1"]
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
    assert run.tick(121) == ["Diagnose worker/0 worker/1"]


def test_a_scorer_that_polls_for_ever_hides_no_stall(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1}, progress_s=120).running()
    run.tick(119)
    run.happens(events.Progressed, "scorer/0")
    assert run.tick(2) == ["Diagnose worker/0 scorer/0"]


def test_a_worker_that_hangs_is_not_hidden_by_one_that_has_returned(a_run):
    run = a_run(progress_s=120).running()
    run.tick(100)
    run.returns("worker/0")
    assert run.tick(21) == ["Diagnose worker/1"]


def test_one_worker_of_several_may_work_alone(a_run):
    run = a_run(counts={"worker": 2}, progress_s=120).running()
    for _ in range(10):
        run.happens(events.Progressed, "worker/0", after=100)
        assert run.tick(1) == []


def test_a_scorer_that_hangs_at_the_end(a_run):
    run = a_run(counts={"worker": 1, "scorer": 1}, progress_s=120).running()
    run.tick(100)
    run.returns("worker/0")
    assert run.tick(119) == []
    assert run.tick(2) == ["Diagnose scorer/0"]


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


def test_a_replacement_whose_data_does_not_come_is_lost_again(a_run):
    run = a_run(with_data=frozenset({"worker"}), recovery=RecoveryPolicy(), progress_s=50)
    run.happens(events.DataReady)
    run.placed()
    for key in ("worker/0", "worker/1"):
        run.happens(events.Loaded, key)
    run.up()
    run.starts()
    run.exits("worker/1")
    run.placed("worker/1", on="c")
    run.up("worker/1")
    run.happens(events.Progressed, "worker/0", after=50)
    assert run.tick(1) == ["Kill worker/1#1@c", "Place worker/1"]
    assert run.state.losses[-1] == "worker 1 is lost: its data did not reach it within 50 s."
