"""What a run wants done. The driver carries commands out, in order, and answers with events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dask_train.run.messages import Message, RoleProcess

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
class Tell(Command):
    """Send a message to a role process, by way of the agent at ``address``; the driver adds what only it knows."""

    to: RoleProcess
    address: str
    message: Message


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
