"""``data=`` and ``resources=``: by role only where every key is a role, and never guessed."""

from __future__ import annotations

import pytest

from dask_train.driver.settings import data_by_role, resources_by_role

ROLES = ("worker", "scorer")


@pytest.mark.parametrize(
    ("data", "by_role"),
    [
        (None, {}),
        ([1], {"worker": [1]}),
        ({"x": 1, "y": 2}, {"worker": {"x": 1, "y": 2}}),
        ({0: 1}, {"worker": {0: 1}}),
        ({"worker": 1}, {"worker": 1}),
        ({"worker": 1, "scorer": 2}, {"worker": 1, "scorer": 2}),
        ({"worker": {"worker": 1, "y": 2}}, {"worker": {"worker": 1, "y": 2}}),
        ({"worker": 1, "chief": 2}, {"worker": 1, "chief": 2}),  # the run has no chief, as whoever starts it says
    ],
)
def test_data_is_by_role_where_all_keys_are_roles(data, by_role):
    assert data_by_role(data, ROLES) == by_role
    assert data_by_role(data, ROLES, features=1, label=0) == by_role  # names of columns, as of pandas


@pytest.mark.parametrize(
    ("data", "columns", "told"),
    [
        ({"worker": 1, "y": 2}, {}, "'worker', which is a role and stands beside 'y', which is no role"),
        ({"y": 2, "ps": 1}, {}, "'ps', which is a role and stands beside 'y'"),  # also where the run has no such role
        ({"worker": 1}, {"features": ["worker"]}, "'worker', which is a role and is named as a column, too"),
        ({"worker": 1, "scorer": 2}, {"features": "worker", "label": "scorer"}, "'worker', which is a role and is nam"),
        ({"worker": 1, "scorer": 2}, {"label": "scorer"}, "'scorer', which is a role and is named as a column"),
    ],
)
def test_a_key_that_may_be_a_role_and_a_column_is_refused(data, columns, told):
    with pytest.raises(ValueError, match=rf"{told}.*Columns are passed by role: data={{'worker': {{\.\.\.}}}}"):
        data_by_role(data, ROLES, **columns)


@pytest.mark.parametrize(
    ("resources", "by_role"),
    [
        (None, {}),
        ({}, {}),
        ({"GPU": 1}, {"worker": {"GPU": 1.0}, "scorer": {"GPU": 1.0}}),
        ({"worker": {"GPU": 1}}, {"worker": {"GPU": 1.0}}),
        ({"ps": {"memory": 2}, "worker": {}}, {"ps": {"memory": 2.0}, "worker": {}}),
    ],
)
def test_resources_are_for_all_roles_but_parameter_servers_or_by_role(resources, by_role):
    assert resources_by_role(resources, ("ps", *ROLES)) == by_role


@pytest.mark.parametrize(
    ("resources", "error", "told"),
    [
        ("GPU", TypeError, "resources is 'GPU'; pass a dict"),
        ({"GPU": -1}, ValueError, "asks for GPU=-1; an amount is a finite number from 0"),
        ({"worker": {"GPU": float("nan")}}, ValueError, "asks for GPU=nan"),
        ({"ps": {"GPU": 1}}, ValueError, "names role 'ps', which the run does not have: its roles are worker, scorer"),
        ({"GPU": 1, "worker": {"GPU": 1}}, ValueError, "has 'worker' by role and 'GPU' for all roles"),
        ({"worker": 1}, ValueError, "'worker' is a role: it may be meant by role or as a resource of that name"),
        ({"ps": 1}, ValueError, "'ps' is a role"),
    ],
)
def test_resources_that_can_not_be(resources, error, told):
    with pytest.raises(error, match=told):
        resources_by_role(resources, ROLES)
