"""``RunSettings``: what concerns a run, whatever is trained in it, as one value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from dask_train.arguments import CheckedSettings, checked_by, converted_by, flag, unlisted
from dask_train.checkpoint.policy import Checkpoint, check_checkpoint
from dask_train.cluster.devices import Gpus, check_gpus
from dask_train.logging.base import Logger
from dask_train.logging.log import check_log
from dask_train.roles import check_run_name
from dask_train.run.recovery import RecoveryPolicy, check_recovery
from dask_train.run.stopping import StopRule, check_stop
from dask_train.shared_data.streaming import check_streaming
from dask_train.training.by_role import resources_by_role

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

DEFAULT = "default"


def check_on(on: Any) -> None:
    """Check which Dask workers there are to choose from.

    Raises
    ------
    ValueError
        It is no list of them.
    """
    if on is not None and (isinstance(on, str) or not on):
        raise ValueError(f"on is {on!r}; pass a list of Dask workers' addresses, or leave it out.")


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
    stop, checkpoint, recovery, log
        What the user's texts, functions and lists mean.
    on, resources, gpus, client, wait, name, resume
        As the user passed them.
    progress
        Whether to show how the run goes; None does so in terminals and notebooks.
    runs_on_host
        Number of runs like this one that share the cores of each host.
    """

    streaming: bool | int = checked_by(check_streaming, False)
    stop: StopRule | None = converted_by(check_stop, None)
    checkpoint: Checkpoint | None = None
    resume: bool = False
    recovery: RecoveryPolicy | None = converted_by(_recovery_of, DEFAULT)
    on: Sequence[str] | None = checked_by(check_on, None)
    resources: Mapping[str, Any] | None = None
    gpus: Gpus = checked_by(check_gpus, "auto")
    client: Client | None = None
    wait: bool = flag(True)
    name: str | None = checked_by(check_run_name, None)
    log: list[Logger] = converted_by(check_log, None)
    progress: bool | None = unlisted(None)
    runs_on_host: int = unlisted(1)

    def __post_init__(self) -> None:
        """Check all fields, and what they mean together.

        Raises
        ------
        TypeError, ValueError
            One can't be.
        """
        super().__post_init__()
        object.__setattr__(self, "checkpoint", check_checkpoint(self.checkpoint, self.resume))

    @property
    def window(self) -> int | None:
        """Partitions of a group; None where data is not streamed."""
        return check_streaming(self.streaming)

    def needs(self, roles: Collection[str]) -> dict[str, dict[str, float]]:
        """Return what each role process needs of the Dask workers' resources.

        Raises
        ------
        TypeError, ValueError
            ``resources`` can't be of a run with these roles.
        """
        return resources_by_role(self.resources, roles)

    def named(self, name: str) -> Self:
        """Return these settings with a name, where they have none."""
        return replace(self, name=self.name or name)
