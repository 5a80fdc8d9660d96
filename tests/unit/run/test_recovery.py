"""What a recovery policy decides."""

from __future__ import annotations

import pytest

from dask_train.run.recovery import Failure, RecoveryPolicy, check_recovery


def decided(policy: RecoveryPolicy, **failure: object) -> str:
    defaults = {"role": "worker", "raised": False, "replaceable": True, "num_restarts": 0}
    return policy.decide(Failure(**(defaults | failure)))


def test_only_what_is_lost_or_all():
    assert decided(RecoveryPolicy(scope="role")) == "role"
    assert decided(RecoveryPolicy(scope="role"), replaceable=False) == "gang"
    assert decided(RecoveryPolicy(scope="gang")) == "gang"


def test_in_place_where_the_others_can_go_on():
    assert decided(RecoveryPolicy(scope="in_place"), in_place=True, replaceable=False) == "in_place"
    assert decided(RecoveryPolicy(scope="in_place"), in_place=False) == "gang"
    assert decided(RecoveryPolicy(scope="role"), in_place=True, replaceable=False) == "gang"


def test_so_often():
    policy = RecoveryPolicy(max_restarts=2)
    assert [decided(policy, num_restarts=number) for number in range(4)] == ["role", "role", "end", "end"]
    assert decided(RecoveryPolicy(max_restarts=0)) == "end"


def test_exceptions_end_it_unless_they_are_to_be_retried():
    assert decided(RecoveryPolicy(), raised=True) == "end"
    assert decided(RecoveryPolicy(retry_errors=True), raised=True) == "role"
    assert decided(RecoveryPolicy(retry_errors=True, max_restarts=1), raised=True, num_restarts=1) == "end"


def test_what_users_pass():
    own = RecoveryPolicy(max_restarts=7)
    assert check_recovery(own) is own
    assert check_recovery(None) is None
    assert check_recovery("role") == RecoveryPolicy(scope="role")
    assert check_recovery("gang") == RecoveryPolicy(scope="gang")
    assert check_recovery("in_place") == RecoveryPolicy(scope="in_place")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ("all", ValueError, "recovery is 'all'; it is 'role', 'gang', 'in_place', None or a RecoveryPolicy"),
        (True, TypeError, "recovery is a bool; it is 'role', 'gang', 'in_place', None or a RecoveryPolicy"),
    ],
)
def test_what_is_no_recovery(given, error, text):
    with pytest.raises(error, match=text):
        check_recovery(given)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="scope is 'host'; it is 'role', 'gang' or 'in_place'"):
        RecoveryPolicy(scope="host")
    for count in (-1, 1.5, True, "3"):
        with pytest.raises(ValueError, match=r"max_restarts is .*; it is a whole number from 0"):
            RecoveryPolicy(max_restarts=count)
