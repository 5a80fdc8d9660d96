"""``data=`` and ``resources=``: for all roles or by role, told apart without guessing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask_train.collections.source import Source
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import SharedSegments

# Roles that runs have by convention; a key of such a name is never taken for a column or a resource.
USUAL_ROLES = ("worker", "chief", "ps", "scorer")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunInputs:
    """Data of a run, as the user or a verb has passed it.

    Attributes
    ----------
    data
        Of the workers, or by role.
    datasets
        More data sets by name.
    features, label
        Columns that batches are made of, where data is a frame.
    """

    data: Any = None
    datasets: Mapping[str, Any] | None = None
    features: str | Sequence[str] | None = None
    label: str | None = None

    def opened(self, roles: Collection[str]) -> RunSources:
        """Return the sources of a run with these roles; nothing is computed.

        Raises
        ------
        TypeError, ValueError
            Data can't be read as rows, or may be meant by role as well as as columns.
        """
        features, label = self.features, self.label
        by_role = data_by_role(self.data, roles, features, label)
        return RunSources(
            by_role={role: _source_of(f"data[{role!r}]", value, features, label) for role, value in by_role.items()},
            named={name: _source_of(f"datasets[{name!r}]", value) for name, value in (self.datasets or {}).items()},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSources:
    """Sources of a run's rows.

    Attributes
    ----------
    by_role
        Of the roles that have data.
    named
        Of data sets that roles open by name.
    """

    by_role: Mapping[str, Source | SharedSegments] = field(default_factory=dict)
    named: Mapping[str, Source | SharedSegments] = field(default_factory=dict)


def _source_of(
    what: str, value: Any, features: str | Sequence[str] | None = None, label: str | None = None
) -> Source | SharedSegments:
    if isinstance(value, Source | SharedSegments):  # a verb has looked at it
        return value
    return as_source(what, value, features=features, label=label)


def data_by_role(
    data: Any,
    roles: Collection[str],
    features: str | Sequence[str] | None = None,
    label: str | None = None,
) -> dict[str, Any]:
    """The data of each role: a dict whose keys are all roles is by role, and anything else is that of the workers.

    Parameters
    ----------
    data
        As the user gave it.
    roles
        The roles of the run.
    features, label
        The columns that the user has named.

    Raises
    ------
    ValueError
        A key may be a role as well as a column.
    """
    if data is None:
        return {}
    if not isinstance(data, Mapping) or not (named := _roles_in(data, roles)):
        return {"worker": data}
    columns = {*([features] if isinstance(features, str) else features or ()), label}
    as_column = next((key for key in named if key in columns), None)
    other = next((key for key in data if key not in named), None)
    if as_column is None and other is None:
        return dict(data)
    key = as_column or named[0]
    beside = "is named as a column, too" if as_column else f"stands beside {other!r}, which is no role"
    raise ValueError(
        f"data has the key {key!r}, which is a role and {beside}: it may be meant by role or as columns. By role, "
        "name roles only. Columns are passed by role: data={'worker': {...}}."
    )


def resources_by_role(resources: Any, roles: Collection[str]) -> dict[str, dict[str, float]]:
    """What each role process needs; amounts without roles are for all of them but parameter servers.

    Raises
    ------
    TypeError, ValueError
        They are no finite amounts by name or by role, name a role that the run does not have, or a key may be a role
        as well as a resource.
    """
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise TypeError(
            f"resources is {resources!r}; pass a dict of names to amounts, such as {{'GPU': 1}}, or such dicts by role."
        )
    dicts = [key for key, value in resources.items() if isinstance(value, Mapping)]
    for role in dicts:
        if role not in roles:
            raise ValueError(
                f"resources names role {role!r}, which the run does not have: its roles are {', '.join(roles)}."
            )
    plain = {key: value for key, value in resources.items() if key not in dicts}
    if not plain:
        return {role: _amounts(wanted) for role, wanted in resources.items()}
    if dicts:
        raise ValueError(
            f"resources has {dicts[0]!r} by role and {next(iter(plain))!r} for all roles. Pass amounts for all roles, "
            f"such as {{'GPU': 1}}, or a dict for each role, such as {{{dicts[0]!r}: {{'GPU': 1}}}}."
        )
    for key in _roles_in(plain, roles):
        raise ValueError(
            f"resources has {key!r}: {plain[key]!r}, and {key!r} is a role: it may be meant by role or as a resource "
            f"of that name. By role, say of what: {{{key!r}: {{'GPU': 1}}}}."
        )
    amounts = _amounts(plain)
    return {role: amounts for role in roles if role != "ps"}


def _roles_in(keys: Iterable[Any], roles: Collection[str]) -> list[str]:
    return [key for key in keys if key in roles or key in USUAL_ROLES]


def _amounts(wanted: Mapping[str, Any]) -> dict[str, float]:
    for what, amount in wanted.items():
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not (is_number and math.isfinite(amount) and amount >= 0):
            raise ValueError(f"resources asks for {what}={amount!r}; an amount is a finite number from 0.")
    return {what: float(amount) for what, amount in wanted.items()}
