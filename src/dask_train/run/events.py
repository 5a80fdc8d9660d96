"""What can happen to a run. Every event carries the time at which it was seen, in seconds since the epoch.

An event about a role process carries the attempt that it belongs to, so that what a process says that has been
replaced meanwhile is recognised and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """Root of all events."""

    time: float


@dataclass(frozen=True, kw_only=True)
class RoleEvent(Event):
    """Something about one role process."""

    role: str
    rank: int
    attempt: int

    @property
    def key(self) -> tuple[str, int]:
        """Which role of the run it is."""
        return self.role, self.rank


@dataclass(frozen=True, kw_only=True)
class Placed(Event):
    """The scheduler has found room for roles: their Dask workers, by ``role/rank``."""

    places: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NoRoom(Event):
    """The scheduler won't find room for ``roles``.

    ``wanted`` is what was asked for, and ``why`` what stands in the way.
    """

    wanted: str
    why: str
    change: str
    roles: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class RoleReady(RoleEvent):
    """The role process is up, its framework imported, its port bound; ``peer`` is ``host:port`` or empty."""

    pid: int
    peer: str


@dataclass(frozen=True, kw_only=True)
class DataLoaded(RoleEvent):
    """The role's data lies where its process can map it."""


@dataclass(frozen=True, kw_only=True)
class RoleStarted(RoleEvent):
    """The role has met its peers and is in the user's function."""


@dataclass(frozen=True, kw_only=True)
class Progressed(RoleEvent):
    """Progress of the role: a batch, a report, a message, a checkpoint; not waiting, nor asking whether to stop."""


@dataclass(frozen=True, kw_only=True)
class AwaitsClient(RoleEvent):
    """The role waits for a value that the client is to send, or no longer."""

    awaits: bool


@dataclass(frozen=True, kw_only=True)
class RoleMeets(RoleEvent):
    """The role waits for all training roles, to do something together; they reach it at ``address``.

    ``size`` is how many they are to be where that is known, and else 0.
    """

    address: str
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class RestartNeeded(RoleEvent):
    """The role can't continue after another one was replaced in place: all have to start again."""

    why: str


@dataclass(frozen=True, kw_only=True)
class RoleEnded(RoleEvent):
    """The user's function has returned."""


@dataclass(frozen=True, kw_only=True)
class RoleFailed(RoleEvent):
    """The user's function, or the way into it, has raised. ``launching`` tells which.

    ``unanswered`` tells that another role had not answered it in time, so that the fault may be another's.
    """

    error: str
    launching: bool
    unanswered: bool = False


@dataclass(frozen=True, kw_only=True)
class RoleExited(RoleEvent):
    """The role process is gone without a last word.

    ``leaves`` tells that it was ended since its Dask worker leaves the cluster in order.
    """

    cause: str
    leaves: bool = False


@dataclass(frozen=True, kw_only=True)
class DaskWorkerLost(Event):
    """A Dask worker has left the cluster, with all role processes on it."""

    address: str


@dataclass(frozen=True, kw_only=True)
class AgentFailed(Event):
    """The agent on a Dask worker could not start, or ended by an error."""

    address: str
    error: str


@dataclass(frozen=True, kw_only=True)
class PartitionComputed(Event):
    """Dask has computed another partition of the run's data."""


@dataclass(frozen=True, kw_only=True)
class DataReady(Event):
    """All partitions are computed, and their lengths known."""


@dataclass(frozen=True, kw_only=True)
class DataLost(Event):
    """The data can't be computed, or is not what it has to be."""

    error: str


@dataclass(frozen=True, kw_only=True)
class StopAsked(Event):
    """A rule is met, a role or a user asks the run to end in order."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class ResizeAsked(Event):
    """The user asks for another number of workers; room may be waited for as long as ``timeout_s``."""

    number: int
    size: int
    timeout_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DriverFailed(Event):
    """The run can't be driven any longer: the scheduler is gone, or a bug of ours has shown."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Diagnosed(Event):
    """The picture of a stalled run has been collected.

    ``silent`` are the roles whose agents do not answer; ``frozen`` those whose agents do, and whose processes do not;
    ``stopped`` those of the frozen that a signal has stopped, which are busy with nothing.
    """

    stalled: tuple[str, ...]
    silent: tuple[tuple[str, int], ...] = ()
    frozen: tuple[tuple[str, int], ...] = ()
    stopped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClientWaits(Event):
    """The client has begun to wait for the run, or waits no longer: only then may roles wait for the client."""

    waits: bool


@dataclass(frozen=True, kw_only=True)
class Ticked(Event):
    """Time has passed."""
