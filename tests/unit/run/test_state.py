"""What is known of a run, and in which order its roles are counted."""

from __future__ import annotations

from dask_train.run.state import Role, RolePhase, RunPlan, RunState, name_of

PLAN = RunPlan(
    counts={"ps": 1, "worker": 2, "chief": 1, "scorer": 1},
    training=frozenset({"worker", "chief"}),
    services=frozenset({"ps", "scorer"}),
)


def test_every_role_has_a_key():
    assert PLAN.role_keys() == (("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0), ("scorer", 0))


def test_training_roles_are_numbered_through_from_the_chief_on():
    assert PLAN.training_roles() == ("chief", "worker")
    assert PLAN.training_keys() == (("chief", 0), ("worker", 0), ("worker", 1))
    assert RunPlan(counts={"ps": 1}, training=frozenset()).training_keys() == ()


def test_a_state_says_how_many_roles_are_where():
    roles = {
        ("worker", rank): Role(phase=phase) for rank, phase in enumerate([RolePhase.RUNNING] * 2 + [RolePhase.GONE])
    }
    assert str(RunState(plan=PLAN, roles=roles)) == "waiting for room: 2 running, 1 gone"
    assert name_of(("worker", 1)) == "worker 1"
