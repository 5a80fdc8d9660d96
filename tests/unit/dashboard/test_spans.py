"""The course of each role, from what the driver notes."""

from __future__ import annotations

from dask_train.dashboard.spans import KINDS, MOST_SPANS, Mark, RoleSpan, Spans
from dask_train.run.state import RolePhase

ENDS = {RolePhase.RETURNED, RolePhase.GONE}


def note(spans, now, phase, attempt=0, losses=(), over=False):
    roles = [["worker", 0, phase, attempt, "tcp://h:1", 7, "", 0]]
    spans.summary({"roles": roles, "losses": list(losses)}, now, over=over)


def test_phases_are_those_that_roles_have():
    assert set(KINDS) == {str(phase) for phase in RolePhase if phase not in ENDS}


def test_a_role_from_room_over_a_loss_to_its_return():
    spans = Spans()
    note(spans, 0.0, "waiting for room")
    note(spans, 1.0, "starting")
    note(spans, 2.0, "ready")
    note(spans, 3.0, "running")
    note(spans, 3.5, "running")
    note(spans, 6.0, "waiting for room", 1, ["worker 0 was killed."])
    note(spans, 7.0, "meeting its peers", 1)
    note(spans, 8.0, "running", 1)
    note(spans, 9.0, "returned", 1)
    note(spans, 9.5, "returned", 1, over=True)
    (course,) = spans.values()
    assert course.spans == [
        RoleSpan("waiting for room", 0, 0.0, 1.0),
        RoleSpan("launching", 0, 1.0, 3.0),
        RoleSpan("training", 0, 3.0, 6.0),
        RoleSpan("waiting for room", 1, 6.0, 7.0),
        RoleSpan("launching", 1, 7.0, 8.0),
        RoleSpan("training", 1, 8.0, 9.0),
    ]
    assert course.marks == [Mark("lost", 0, 6.0, "worker 0 was killed."), Mark("returned", 1, 9.0)]


def test_what_goes_on_ends_with_the_run():
    spans = Spans()
    note(spans, 1.0, "running")
    note(spans, 2.0, "running", over=True)
    assert spans["worker", 0].spans == [RoleSpan("training", 0, 1.0, 2.0)]


def test_of_a_role_that_is_restarted_for_ever_the_last_attempts_are_kept():
    spans = Spans()
    for attempt in range(2 * MOST_SPANS):
        note(spans, float(attempt), "running", attempt)
    assert len(spans["worker", 0].spans) == MOST_SPANS
    assert spans["worker", 0].spans[-1].attempt == 2 * MOST_SPANS - 1
