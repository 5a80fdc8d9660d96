"""What concerns a run, whatever is trained in it, as values: its settings, and its data by role."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from dask_train.arguments import CheckedSettings, checked_by, converted_by, flag, unlisted
from dask_train.checkpoint.policy import Checkpoint, check_checkpoint
from dask_train.cluster.devices import Gpus, check_gpus
from dask_train.collections.schema.frame_schema import names_in
from dask_train.collections.source import OwnRows, Source
from dask_train.logging.base import Logger
from dask_train.logging.log import check_log
from dask_train.report.progress import check_progress
from dask_train.roles import check_run_name
from dask_train.run.bounds import WorkerBounds
from dask_train.run.recovery import RecoveryPolicy, check_recovery
from dask_train.run.stopping import StopRule, check_stop, rule_within_epochs, rules_of_epochs
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import SharedSegments
from dask_train.shared_data.streaming import check_streaming
from dask_train.spelling import named

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

DEFAULT = "default"
# Roles that runs have by convention; a key of such a name is never taken for a column or a resource.
USUAL_ROLES = ("worker", "chief", "ps", "scorer")


def _addresses_of(on: Any) -> list[str] | None:
    if on is not None and (isinstance(on, str) or not on):
        raise ValueError(f"on is {on!r}; pass a list of Dask workers' addresses, or leave it out.")
    return None if on is None else list(on)


def _recovery_of(recovery: Any) -> RecoveryPolicy | None:
    # Roles that agree every step are replaced together in any case.
    return RecoveryPolicy() if recovery == DEFAULT else check_recovery(recovery)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSettings(CheckedSettings):
    """Settings of a run, as :func:`dask_train.train` takes them, checked when they are made.

    Attributes
    ----------
    streaming
        As the user passed it; :attr:`window` is what it means.
    stop, checkpoint, recovery, log, on
        What the user's texts, functions and lists mean.
    resources, gpus, client, wait, name, resume
        As the user passed them.
    progress
        Show how the run goes; None does so in terminals and notebooks.
    runs_on_host
        Number of runs like this one that share the cores of each host.
    resizes
        Raises where that many workers can't train what the run trains. None: their number stays.
    one_host
        Whether all workers have to be on one host.
    follows
        Bounds of the number of workers where it follows the Dask workers. None: it does not.
    epoch_rules
        Rules to stop by that the training loop asks when an epoch has ended.
    """

    streaming: bool | int = checked_by(check_streaming, False)
    stop: StopRule | None = converted_by(check_stop, None)
    checkpoint: Checkpoint | None = None
    resume: bool = False
    recovery: RecoveryPolicy | None = converted_by(_recovery_of, DEFAULT)
    on: Sequence[str] | None = converted_by(_addresses_of, None)
    resources: Mapping[str, Any] | None = None
    gpus: Gpus = checked_by(check_gpus, "auto")
    client: Client | None = None
    wait: bool = flag(True)
    name: str | None = checked_by(check_run_name, None)
    log: list[Logger] = converted_by(check_log, None)
    progress: bool | None = unlisted(None)
    runs_on_host: int = unlisted(1)
    resizes: Callable[[int], None] | None = unlisted(None)
    one_host: bool = unlisted(False)
    follows: WorkerBounds | None = unlisted(None)
    epoch_rules: tuple[StopRule, ...] = unlisted(())

    def __post_init__(self) -> None:
        """Check all fields, and what they mean together.

        Raises
        ------
        TypeError, ValueError
            One can't be.
        """
        super().__post_init__()
        check_progress(self.progress, waits=bool(self.wait))
        object.__setattr__(self, "checkpoint", check_checkpoint(self.checkpoint, self.resume))

    @property
    def window(self) -> int | None:
        """Partitions of a group; None if data is not streamed."""
        return check_streaming(self.streaming)

    def needs(self, roles: Collection[str]) -> dict[str, dict[str, float]]:
        """Return what each role process needs of the Dask workers' resources.

        Raises
        ------
        TypeError, ValueError
            ``resources`` can't be of a run with these roles.
        """
        return resources_by_role(self.resources, roles)

    def with_epoch_rules(self) -> Self:
        """Return these settings with rules for the training loop, which alone stops exactly where an epoch ends."""
        return replace(self, stop=rule_within_epochs(self.stop), epoch_rules=rules_of_epochs(self.stop))

    def named(self, name: str) -> Self:
        """Return these settings with a name, where they have none."""
        return replace(self, name=self.name or name)


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

    def snapshot(self) -> RunSources:
        """Return the same rows as they are now, for a run that lasts while the user's program continues."""
        by_role, named = (
            {name: each.snapshot() for name, each in sources.items()} for sources in (self.by_role, self.named)
        )
        return RunSources(by_role=by_role, named=named)


def _source_of(
    what: str, value: Any, features: str | Sequence[str] | None = None, label: str | None = None
) -> Source | SharedSegments:
    if isinstance(value, Source | SharedSegments):  # a verb has looked at it
        return value
    if isinstance(value, OwnRows) and features is None and label is None:
        return value.source()
    return as_source(what, value, features=features, label=label, sparse=True)


def data_by_role(
    data: Any,
    roles: Collection[str],
    features: str | Sequence[str] | None = None,
    label: str | None = None,
) -> dict[str, Any]:
    """Return the data of each role: a dict whose keys are all roles is by role, all else is for the workers.

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
    columns = {*names_in(features), label}
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
    """Return what each role process needs; amounts without roles are for all of them but parameter servers.

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
            raise ValueError(f"{named('resources')} asks for {what}={amount!r}; an amount is a finite number from 0.")
    return {what: float(amount) for what, amount in wanted.items() if amount}
