"""Another number of workers while a run trains: who is started, who is told, and what becomes of losses meanwhile."""

from __future__ import annotations

import pytest

from dask_train.run import events, messages
from dask_train.run.commands import PlaceRoles
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.resizing import leftover
from dask_train.run.state import Phase, ResizePhase, RolePhase

IN_PLACE = {"counts": {"worker": 2}, "agree": True, "in_place": True, "recovery": RecoveryPolicy(scope="in_place")}


def meets(run, key, size=0, host="a"):
    return run.happens(messages.Meets, key, address=f"{host}:{key[-1]}", size=size)


@pytest.fixture
def run(a_run):
    """Two workers that have met on one host, and train."""
    run = a_run(**IN_PLACE).running()
    meets(run, "worker/0")
    meets(run, "worker/1")
    return run


def asked(run, size, number=0):
    return run.happens(events.ResizeAsked, number=number, size=size)


def placed(run, *keys, on="d"):
    return run.happens(events.Placed, places=dict.fromkeys(keys, on))


def joins(run, *keys, host="a"):
    """These are placed and started, until they wait for the others; what is to be done then."""
    placed(run, *keys, on="d")
    said = []
    for key in keys:
        run.up(key)
        run.starts(key)
        said = meets(run, key, host=host)
    return said


def settled(run):
    """How many there are, and why not as many as asked for, if that is known."""
    assert run.state.resize.phase is ResizePhase.SETTLED
    return run.state.plan.counts["worker"], run.state.resize.why


def is_to_leave(run):
    """Let worker 2 join, and then know that it is to leave."""
    asked(run, 3)
    joins(run, "worker/2")
    meets(run, "worker/0", 3)
    meets(run, "worker/1", 3)
    asked(run, 2, 1)


def test_those_that_join_wait_before_the_first_worker_is_told_and_all_meet_in_the_new_number(run):
    assert asked(run, 4) == ["PlaceRoles worker/2 worker/3"]
    (place,) = run.log[-1][1]
    assert (place.timeout_s, place.beside) == (0.0, None)
    assert placed(run, "worker/2", "worker/3", on="d") == ["StartProcess worker/2#0@d", "StartProcess worker/3#0@d"]
    assert {(told.message.counts["worker"], told.message.joins) for told in run.log[-1][1]} == {(4, True)}
    run.up("worker/2")
    run.up("worker/3")
    run.starts("worker/2")
    run.starts("worker/3")
    assert meets(run, "worker/2") == []
    assert meets(run, "worker/3") == ["Resize worker/0#0@a"]
    assert run.state.plan.counts == {"worker": 2}
    assert meets(run, "worker/1", 4) == []
    assert meets(run, "worker/0", 4) == [f"Met worker/{rank}#0@{on}" for rank, on in enumerate("abdd")]
    assert {len(told.message.attempts) for told in run.log[-1][1]} == {4}
    assert settled(run) == (4, "")


def test_those_that_leave_are_not_missed(run):
    asked(run, 4)
    joins(run, "worker/2", "worker/3")
    for rank in range(2):
        meets(run, f"worker/{rank}", 4)
    assert asked(run, 3, 1) == ["Resize worker/0#0@a"]
    run.returns("worker/3")
    meets(run, "worker/0", 3)
    meets(run, "worker/2", 3)
    said = meets(run, "worker/1", 3)
    assert said == ["Met worker/0#0@a", "Met worker/1#0@b", "Met worker/2#0@d", "Free worker/3"]
    assert settled(run) == (3, "")
    assert run.exits("worker/3") == []
    assert asked(run, 4, 2) == ["PlaceRoles worker/3"]
    assert joins(run, "worker/3") == ["Resize worker/0#0@a"]
    assert run["worker/3"].attempt == 1
    for rank in range(3):
        meets(run, f"worker/{rank}", 4)
    assert settled(run) == (4, "")


def test_one_that_has_left_and_does_not_return_is_ended(run):
    asked(run, 3)
    joins(run, "worker/2")
    for number, size in enumerate((3, 2)):
        asked(run, size, number)
        meets(run, "worker/0", size)
        meets(run, "worker/1", size)
    assert leftover(run.state) == [("worker", 2)]
    run.happens(events.Progressed, "worker/0", after=run.plan.progress_s - 5)
    assert run.tick() == []
    run.happens(events.Progressed, "worker/0", after=10)
    assert run.tick() == ["Kill worker/2#0@d"]
    assert run.exits("worker/2") == []
    assert leftover(run.state) == []


def test_the_run_ends_when_those_have_returned_that_it_has(run):
    is_to_leave(run)
    meets(run, "worker/0", 2)
    meets(run, "worker/1", 2)
    run.returns("worker/2")
    assert run.phase is Phase.RUNNING
    run.returns("worker/0")
    run.returns("worker/1")
    assert run.phase is Phase.OVER


@pytest.mark.parametrize(
    ("loses", "why"),
    [
        (lambda run: run.exits("worker/2"), "worker 2 is lost"),
        (lambda run: run.happens(messages.WorkerLost, address="d"), "worker 2 is lost: the Dask worker d left"),
        (lambda run: run.happens(messages.Failed, "worker/2", error="x", launching=True), "worker 2 could not start"),
        (lambda run: run.tick(after=run.plan.launch_s + 1), "worker 2 is lost: it did not start"),
        (lambda run: run.happens(messages.Stop, reason="enough"), "the run stops: enough"),
    ],
    ids=["process", "Dask worker", "raises", "late", "stop"],
)
def test_what_is_lost_before_anyone_is_told_is_of_no_concern(run, loses, why):
    asked(run, 3)
    placed(run, "worker/2", on="d")
    said = loses(run)
    assert "Free worker/2" in said
    assert settled(run)[0] == 2
    assert why in settled(run)[1]
    assert (run.state.losses, run.state.num_restarts) == ((), 0)
    assert run["worker/0"].phase is RolePhase.RUNNING


def test_without_room_the_run_goes_on(run):
    asked(run, 3)
    said = run.happens(events.NoRoom, wanted="worker 2 found no room.", why="None.", change="", roles=(("worker", 2),))
    assert "Free worker/2" in said
    assert settled(run) == (2, "worker 2 found no room. None.")
    assert (run.phase, run.state.ending) == (Phase.RUNNING, None)


def test_others_may_join_on_another_host(run):
    asked(run, 3)
    assert joins(run, "worker/2", host="b") == ["Resize worker/0#0@a"]
    meets(run, "worker/0", 3)
    meets(run, "worker/1", 3)
    assert settled(run) == (3, "")


def test_room_on_another_host_is_none_where_all_have_to_be_on_one(a_run):
    run = a_run(**IN_PLACE, one_host=True).running()
    meets(run, "worker/0")
    meets(run, "worker/1")
    assert asked(run, 3) == ["PlaceRoles worker/2"]
    (place,) = run.log[-1][1]
    assert place.beside == ("worker", 0)
    assert joins(run, "worker/2", host="b") == ["Kill worker/2#0@d", "Free worker/2"]
    assert settled(run) == (2, "there is room for more workers on other hosts only")


# Over hosts, one rank may have completed the last call in the old number, and another one not


def fewer(run):
    """Three workers, the last of which is to leave, as the first one knows; the second one is lost meanwhile."""
    asked(run, 3)
    joins(run, "worker/2", host="b")
    meets(run, "worker/0", 3)
    meets(run, "worker/1", 3)
    assert asked(run, 2, 1) == ["Resize worker/0#0@a"]
    run.exits("worker/1")
    placed(run, "worker/1", on="e")
    run.up("worker/1")
    run.starts("worker/1")
    assert meets(run, "worker/1") == []
    return run


def meets_either(run, key):
    return run.happens(messages.Meets, key, address=f"h:{key[-1]}", size=3, or_size=2)


def test_who_is_in_the_last_call_meets_those_that_have_not_come_to_it_in_the_old_number(run):
    fewer(run)
    assert meets_either(run, "worker/0") == []
    assert meets(run, "worker/2", 3) == ["Met worker/0#0@a", "Met worker/1#1@e", "Met worker/2#0@d"]
    assert run.state.resize.phase is ResizePhase.TOLD


def test_where_none_has_completed_the_last_call_all_meet_in_the_old_number(run):
    fewer(run)
    assert meets_either(run, "worker/2") == []
    assert meets_either(run, "worker/0") == ["Met worker/0#0@a", "Met worker/1#1@e", "Met worker/2#0@d"]


def test_who_is_in_the_last_call_meets_the_others_once_one_has_left_that_has_completed_it(run):
    fewer(run)
    assert meets_either(run, "worker/0") == []
    assert run.returns("worker/2") == ["Met worker/0#0@a", "Met worker/1#1@e", "Free worker/2"]
    assert settled(run) == (2, "")


def test_who_is_to_leave_and_has_not_completed_the_last_call_ends_where_others_have(run):
    fewer(run)
    assert meets_either(run, "worker/2") == []
    assert meets(run, "worker/0", 2) == ["Met worker/0#0@a", "Met worker/1#1@e", "Kill worker/2#0@d", "Free worker/2"]
    assert settled(run) == (2, "")
    assert run.exits("worker/2") == []


def test_who_is_to_leave_and_waits_after_the_others_have_met_ends(run):
    fewer(run)
    assert "Met worker/1#1@e" in meets(run, "worker/0", 2)
    assert leftover(run.state) == [("worker", 2)]
    assert meets_either(run, "worker/2") == ["Kill worker/2#0@d"]
    assert run.exits("worker/2") == []


def test_who_is_in_the_last_call_meets_those_that_join_once_one_has_completed_it(run):
    asked(run, 3)
    joins(run, "worker/2", host="b")
    assert run.happens(messages.Meets, "worker/1", address="h:1", size=2, or_size=3) == []
    assert len(meets(run, "worker/0", 3)) == 3
    assert settled(run) == (3, "")


def test_one_that_is_lost_when_all_have_been_told_is_replaced(run):
    asked(run, 3)
    joins(run, "worker/2")
    meets(run, "worker/0", 3)
    assert run.exits("worker/2") == ["PeerLost worker/0#0@a", "PeerLost worker/1#0@b", "PlaceRoles worker/2"]
    meets(run, "worker/1", 3)
    placed(run, "worker/2", on="d")
    assert run.log[-1][1][0].message.counts == {"worker": 3}
    run.up("worker/2")
    run.starts("worker/2")
    assert meets(run, "worker/2") == ["Met worker/0#0@a", "Met worker/1#0@b", "Met worker/2#1@d"]
    assert settled(run) == (3, "")


def test_one_that_is_lost_before_it_has_heard_is_replaced_in_the_old_number_first(run):
    asked(run, 3)
    joins(run, "worker/2")
    run.exits("worker/0")
    placed(run, "worker/0", on="a")
    run.up("worker/0")
    assert run.starts("worker/0") == ["Resize worker/0#1@a"], "the one that takes its place is told as well"
    assert meets(run, "worker/0") == []
    assert meets(run, "worker/1", 2) == ["Met worker/0#1@a", "Met worker/1#0@b"]
    assert run.state.resize.phase is ResizePhase.TOLD
    meets(run, "worker/0", 3)
    meets(run, "worker/1", 3)
    assert settled(run) == (3, "")


def replaced(run, *keys):
    """Lose these, one after the other, each when the one before waits again; what is done for the last one."""
    said = []
    for key in keys:
        assert f"PlaceRoles {key}" in run.exits(key)
        placed(run, key, on="e")
        run.up(key)
        run.starts(key)
        said = meets(run, key)
    return said


def test_where_none_is_left_that_knows_a_number_all_meet_in_the_old_one(run):
    """Else they would wait for ever, and not learn that none of them has the state."""
    asked(run, 3)
    joins(run, "worker/2")
    assert replaced(run, "worker/0", "worker/1") == ["Met worker/0#1@e", "Met worker/1#1@e"]
    assert run.state.resize.phase is ResizePhase.TOLD
    run.happens(messages.CannotGoOn, "worker/1", why="none has the state")
    assert settled(run)[1].startswith("all workers start again")


def test_where_none_is_left_that_knows_a_number_and_one_has_left_all_meet_in_the_new_one(run):
    is_to_leave(run)
    run.returns("worker/2")
    assert replaced(run, "worker/0", "worker/1") == ["Met worker/0#1@e", "Met worker/1#1@e", "Free worker/2"]
    assert settled(run) == (2, "")


def test_one_that_is_to_leave_and_is_lost_comes_once_more_for_the_others(run):
    is_to_leave(run)
    assert "PlaceRoles worker/2" in run.exits("worker/2")
    placed(run, "worker/2", on="d")
    run.up("worker/2")
    run.starts("worker/2")
    meets(run, "worker/0", 3)
    meets(run, "worker/2")
    assert "Met worker/2#1@d" in meets(run, "worker/1", 3)
    meets(run, "worker/0", 2)
    meets(run, "worker/1", 2)
    assert settled(run) == (2, "")


def test_all_start_again_where_one_that_joins_can_not_meet_the_others_which_have_been_told(run):
    asked(run, 3)
    joins(run, "worker/2")
    meets(run, "worker/0", 3)
    assert run.fails("worker/2", "OSError: no.") == ["Free worker/2", "Kill worker/0#0@a", "Kill worker/1#0@b"]
    assert settled(run) == (2, "all workers start again, as many as there were: worker 2 raised OSError: no.")
    assert run.exits("worker/0", "worker/1") == ["PlaceRoles worker/0 worker/1"]


def test_where_all_start_again_there_are_as_many_as_before(run):
    asked(run, 3)
    joins(run, "worker/2")
    run.happens(messages.CannotGoOn, "worker/1", why="it is so")
    assert settled(run)[0] == 2
    assert settled(run)[1].startswith("all workers start again, as many as there were: worker 1 could not")
    for rank in range(3):
        run.exits(f"worker/{rank}")
    place = run.log[-1][1][-1]
    assert isinstance(place, PlaceRoles)
    assert place.roles == (("worker", 0), ("worker", 1))


def test_the_run_may_end_before(run):
    asked(run, 3)
    joins(run, "worker/2")
    assert "Kill worker/2#0@d" in run.returns("worker/0")
    assert settled(run) == (2, "the run has come to its end")
    run.returns("worker/1")
    assert run.phase is Phase.COMPLETING
    run.exits("worker/2")
    assert (run.phase, run.state.losses) == (Phase.OVER, ())


def test_one_that_is_lost_behind_another_that_has_left_is_replaced(run):
    is_to_leave(run)
    run.returns("worker/2")
    meets(run, "worker/0", 2)
    assert "PlaceRoles worker/1" in run.exits("worker/1")
    placed(run, "worker/1")
    run.up("worker/1")
    run.starts("worker/1")
    assert meets(run, "worker/1") == ["Met worker/0#0@a", "Met worker/1#1@d", "Free worker/2"]
    assert settled(run) == (2, "")


def test_a_run_that_hangs_while_room_is_waited_for_is_looked_into(run):
    asked(run, 3)
    assert run.tick(after=run.plan.progress_s + 1) == ["DiagnoseRoles worker/0 worker/1"]


@pytest.mark.parametrize(
    ("settings", "hosts", "size", "why"),
    [
        ({}, "aa", 2, ""),
        ({"in_place": False}, "aa", 3, "it does not train"),
        ({}, "", 3, "it does not train"),
    ],
    ids=["as many", "not in place", "not met"],
)
def test_what_can_not_be_is_settled_at_once(a_run, settings, hosts, size, why):
    run = a_run(**{**IN_PLACE, **settings}).running()
    for rank, host in enumerate(hosts):
        meets(run, f"worker/{rank}", host=host)
    assert asked(run, size) == []
    assert settled(run) == (2, why)


def test_another_request_waits_for_the_first(run):
    asked(run, 3)
    assert asked(run, 4, 1) == []
    assert run.state.resize.number == 0


def test_a_change_that_nobody_waits_for_gives_back_the_room_that_it_waits_for(run):
    asked(run, 4)
    assert run.happens(events.ResizeCancelled, number=1) == []
    assert run.happens(events.ResizeCancelled, number=0) == ["Free worker/2", "Free worker/3"]
    assert settled(run) == (2, "it was cancelled")
    asked(run, 3, 1)
    assert joins(run, "worker/2") == ["Resize worker/0#0@a"]
    assert run.happens(events.ResizeCancelled, number=1) == [], "it is known"
    assert run.state.resize.phase is ResizePhase.TOLD


# With parameter servers

SERVED = {"counts": {"ps": 1, "worker": 1}, "services": {"ps"}, "replaceable": {"worker"}, "recovery": RecoveryPolicy()}


@pytest.fixture
def served(a_run):
    """A worker with a parameter server, which trains."""
    return a_run(**SERVED).running()


def starts_alone(run, key, on="d"):
    """A worker that joins is placed, and its function begins; what is to be done then."""
    placed(run, key, on=on)
    run.up(key)
    return run.starts(key)


def shares(run, size, key="worker/0"):
    return run.happens(messages.Shared, key, size=size)


def grown(run, size=2):
    asked(run, size)
    for rank in range(1, size):
        starts_alone(run, f"worker/{rank}")
    shares(run, size)
    return run


def test_with_servers_the_first_worker_is_told_when_those_that_join_run_on_any_host(served):
    assert asked(served, 3) == ["PlaceRoles worker/1 worker/2"]
    (place,) = served.log[-1][1]
    assert place.beside is None
    assert starts_alone(served, "worker/1") == []
    assert starts_alone(served, "worker/2") == ["Resize worker/0#0@b"]
    assert served.state.plan.counts["worker"] == 1
    shares(served, 3)
    assert settled(served) == (3, "")


def test_with_servers_those_that_leave_are_workers_until_they_have_ended(served):
    grown(served, 3)
    assert asked(served, 1, 1) == ["Resize worker/0#0@b"]
    served.returns("worker/2")
    shares(served, 1)
    assert served.exits("worker/1") == ["PlaceRoles worker/1"], "it has rows left"
    assert served.state.resize.phase is ResizePhase.SHARED
    starts_alone(served, "worker/1", on="e")
    assert served.returns("worker/1") == ["Free worker/1 worker/2"]
    assert settled(served) == (1, "")
    assert asked(served, 2, 2) == ["PlaceRoles worker/1"]
    assert starts_alone(served, "worker/1") == ["Resize worker/0#0@b"]


def test_with_servers_what_a_lost_first_worker_was_told_its_successor_is_told(served):
    asked(served, 2)
    starts_alone(served, "worker/1")
    assert served.exits("worker/0") == ["PlaceRoles worker/0"]
    assert starts_alone(served, "worker/0", on="e") == ["Resize worker/0#1@e"]
    shares(served, 3)
    shares(served, 2, "worker/1")
    assert served.state.resize.phase is ResizePhase.TOLD
    shares(served, 2)
    assert settled(served) == (2, "")


def counted_by(run, key):
    """The number of workers that a role gets which is placed."""
    placed(run, key)
    (start,) = run.log[-1][1]
    return start.message.counts["worker"]


def test_with_servers_only_those_that_join_count_themselves(served):
    asked(served, 3)
    assert counted_by(served, "worker/2") == 3
    served.exits("worker/0")
    assert counted_by(served, "worker/0") == 1, "batches are shared by as many until the first worker asks for more"
    served.up("worker/0")
    served.starts("worker/0")
    served.up("worker/2")
    served.starts("worker/2")
    starts_alone(served, "worker/1")
    served.exits("worker/1")
    assert counted_by(served, "worker/1") == 3
    shares(served, 3)
    served.exits("worker/0")
    assert counted_by(served, "worker/0") == 3


@pytest.mark.parametrize(
    ("loses", "why"),
    [
        (lambda run: run.exits("worker/2"), "worker 2 is lost"),
        (lambda run: run.happens(events.ResizeCancelled, number=0), "it was cancelled"),
        (lambda run: run.returns("worker/0"), "the run has come to its end"),
    ],
    ids=["process", "cancelled", "end"],
)
def test_with_servers_those_that_do_not_join_are_ended(served, loses, why):
    asked(served, 3)
    starts_alone(served, "worker/1")
    placed(served, "worker/2")
    said = loses(served)
    assert "Kill worker/1#0@d" in said
    assert why in settled(served)[1]
    assert settled(served)[0] == 1


def test_with_servers_only_roles_of_the_run_start_again_where_one_raises(a_run):
    run = a_run(**(SERVED | {"recovery": RecoveryPolicy(retry_errors=True)})).running()
    asked(run, 3)
    starts_alone(run, "worker/1")
    run.happens(events.ResizeCancelled, number=0)
    run.exits("worker/1")
    assert [run.phases[key] for key in ("worker/1", "worker/2")] == [RolePhase.GONE] * 2, "they never joined"
    assert run.fails("worker/0") == ["PlaceRoles worker/0"]


def test_with_servers_others_train_on_when_one_has_gone_through_its_rows(served):
    grown(served)
    asked(served, 3, 1)
    starts_alone(served, "worker/2")
    assert served.returns("worker/1") == [], "the first one may have told of the new number"
    shares(served, 3)
    assert settled(served) == (3, "")
    served.returns("worker/0")
    assert served.phase is Phase.RUNNING
    served.returns("worker/2")
    assert served.phase is Phase.COMPLETING


def test_with_servers_all_start_again_in_the_number_of_before(served):
    grown(served)
    asked(served, 3, 1)
    served.exits("ps/0")
    assert settled(served)[0] == 2
    assert served.phase is Phase.RESTARTING


def test_with_servers_all_start_again_with_those_that_join_if_a_checkpoint_may_know_them(served):
    grown(served)
    asked(served, 3, 1)
    starts_alone(served, "worker/2")
    assert served.exits("ps/0") == ["Kill worker/0#0@b", "Kill worker/1#0@d", "Kill worker/2#0@d"]
    assert settled(served) == (3, "")
    assert served.exits("worker/0", "worker/1", "worker/2") == ["PlaceRoles ps/0 worker/0 worker/1 worker/2"]


def test_with_servers_all_start_again_with_those_that_were_to_leave(served):
    grown(served, 3)
    asked(served, 2, 1)
    served.exits("ps/0")
    assert settled(served)[0] == 3
