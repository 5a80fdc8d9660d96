"""What can happen to a run: a message arrives, or its driver sees something itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dask_train.run.messages import Message, RoleProcess


@dataclass(frozen=True)
class Event:
    """What has happened, and when the driver saw it, in seconds since the epoch.

    ``of`` is the role process that it is about, if it is about one. With its attempt, what a process says that has been
    replaced meanwhile is recognised and dropped.
    """

    time: float
    what: Message | DriverEvent
    of: RoleProcess | None = None


@dataclass(frozen=True, kw_only=True)
class DriverEvent:
    """Root of what the driver sees itself, or concludes from several messages."""


@dataclass(frozen=True, kw_only=True)
class Placed(DriverEvent):
    """The scheduler has found room for roles: their Dask workers, by ``role/rank``."""

    places: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NoRoom(DriverEvent):
    """The scheduler won't find room for ``roles``.

    ``wanted`` is what was asked for, and ``why`` what stands in the way.
    """

    wanted: str
    why: str
    change: str
    roles: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Progressed(DriverEvent):
    """Progress of the role: a batch, a report, a message, a checkpoint; not waiting, nor asking whether to stop."""


@dataclass(frozen=True, kw_only=True)
class AwaitsClient(DriverEvent):
    """The role waits for a value that the client is to send, or no longer."""

    awaits: bool


@dataclass(frozen=True, kw_only=True)
class AgentFailed(DriverEvent):
    """The agent on a Dask worker could not start, or ended by an error."""

    address: str
    error: str


@dataclass(frozen=True, kw_only=True)
class DataReady(DriverEvent):
    """All partitions are computed, and their lengths known."""


@dataclass(frozen=True, kw_only=True)
class ResizeAsked(DriverEvent):
    """The user asks for another number of workers; room may be waited for as long as ``timeout_s``."""

    number: int
    size: int
    timeout_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ResizeCancelled(DriverEvent):
    """The user no longer waits for another number of workers."""

    number: int


@dataclass(frozen=True, kw_only=True)
class DriverFailed(DriverEvent):
    """The run can't be driven any longer: the scheduler is gone, or a bug of ours has shown."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Diagnosed(DriverEvent):
    """The picture of a stalled run has been collected.

    ``silent`` are the roles whose agents do not answer; ``frozen`` those whose agents do, and whose processes do not;
    ``stopped`` those of the frozen that a signal has stopped, which are busy with nothing.
    """

    stalled: tuple[str, ...]
    silent: tuple[tuple[str, int], ...] = ()
    frozen: tuple[tuple[str, int], ...] = ()
    stopped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClientWaits(DriverEvent):
    """The client has begun to wait for the run, or waits no longer: only then may roles wait for the client."""

    waits: bool


@dataclass(frozen=True, kw_only=True)
class Ticked(DriverEvent):
    """Time has passed."""
