"""What a run wants done. The driver carries commands out, in order, and answers with events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Key = tuple[str, int]


class Verdict(StrEnum):
    """How a run ended; each but the first is an error of that kind."""

    OK = "ok"
    PLACEMENT = "PlacementError"
    LAUNCH = "LaunchError"
    ROLE_FAILED = "RoleFailedError"
    ROLE_LOST = "RoleLostError"
    STALLED = "StalledError"
    DATA = "DataError"
    DRIVER = "DaskTrainError"


@dataclass(frozen=True, kw_only=True)
class Command:
    """Root of all commands."""


@dataclass(frozen=True, kw_only=True)
class PlaceRoles(Command):
    """Find room for these roles, all or none, within ``timeout_s``; in place of the room that they had, if any.

    They are on the host of the role named by ``beside``, if any.
    """

    roles: tuple[Key, ...]
    timeout_s: float
    beside: Key | None = None


@dataclass(frozen=True, kw_only=True)
class Free(Command):
    """Give the room of these roles back."""

    roles: tuple[Key, ...]


@dataclass(frozen=True, kw_only=True)
class RoleCommand(Command):
    """Something for one role process."""

    role: str
    rank: int
    attempt: int
    address: str


@dataclass(frozen=True, kw_only=True)
class StartRole(RoleCommand):
    """Start the role process on its Dask worker.

    ``counts`` are how many there are of each role, where these are others than at the beginning; it ``joins`` where the
    others train already.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    joins: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadData(RoleCommand):
    """Bring the role's data to its Dask worker."""


@dataclass(frozen=True, kw_only=True)
class EnterFunction(RoleCommand):
    """Let the role meet its peers and enter the user's function."""


@dataclass(frozen=True, kw_only=True)
class Meet(RoleCommand):
    """All training roles wait for each other: tell the role where they are, in order, or why they never will.

    ``attempts`` are sent if a lost role is replaced in place.
    """

    addresses: tuple[str, ...] = ()
    error: str = ""
    attempts: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TellOfLoss(RoleCommand):
    """Tell the role that a training role is lost, by its number among these, and will be replaced in place."""

    peer: int
    lost_attempt: int


@dataclass(frozen=True, kw_only=True)
class TellSize(RoleCommand):
    """Tell the first worker how many there are to be from the next sync point on."""

    size: int


@dataclass(frozen=True, kw_only=True)
class AskToStop(RoleCommand):
    """From now on the role's ``should_stop()`` is true."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class KillRole(RoleCommand):
    """End the role process at once."""


@dataclass(frozen=True, kw_only=True)
class DiagnoseRoles(Command):
    """Collect phases, last words and Python stacks of these roles."""

    roles: tuple[Key, ...]


@dataclass(frozen=True, kw_only=True)
class Finish(Command):
    """The run is over.

    Attributes
    ----------
    verdict
        What it ended with.
    what, cause, change
        The parts of the error; ``what`` is the reason of the stop where the verdict is OK, or empty.
    role, rank
        Which role is to blame; empty if none is.
    notes
        What became of roles that were not needed any more for what the run returns, as sentences.
    """

    verdict: Verdict
    what: str = ""
    cause: str = ""
    change: str = ""
    role: str = ""
    rank: int = -1
    notes: tuple[str, ...] = ()
