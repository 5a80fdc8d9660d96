"""The messages that change the course of a run, or follow from it. All others: :mod:`dask_train.process.messages`.

A field that is not in a message's ``repr`` does not affect the course, and is left out of recorded runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class RoleProcess(NamedTuple):
    """The role process that a message is from, or for."""

    role: str
    rank: int
    attempt: int

    @property
    def key(self) -> tuple[str, int]:
        """Return which role of the run it is."""
        return self.role, self.rank


@dataclass(frozen=True, kw_only=True)
class Message:
    """Root of all messages."""


@dataclass(frozen=True, kw_only=True)
class Ready(Message):
    """The framework is imported, and the port bound; ``peer`` is ``host:port`` or empty."""

    pid: int
    peer: str


@dataclass(frozen=True, kw_only=True)
class Started(Message):
    """The role has met its peers and enters the user's function."""


@dataclass(frozen=True, kw_only=True)
class Meets(Message):
    """The role waits for all training roles, to do something together; they reach it at ``address``.

    ``size`` is how many they are to be where that is known, and else 0. They may also be ``or_size``, if that is not 0:
    then this one has begun the last call in the old number, and others may have completed it.
    """

    address: str
    size: int = 0
    or_size: int = 0


@dataclass(frozen=True, kw_only=True)
class CannotGoOn(Message):
    """The role can't continue after another one was replaced: all have to start again."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Shared(Message):
    """Batches that are left are shared by as many workers as the first one was told of; none waits for another."""

    size: int


@dataclass(frozen=True, kw_only=True)
class Ended(Message):
    """The user's function has returned; its result is pickled.

    Buffers that the pickle leaves out were left in the client's letterbox: where each begins, and its size.
    """

    result: bytes = field(default=b"", repr=False)
    left: Sequence[Sequence[int]] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Failed(Message):
    """The user's function, or the way into it (``launching``), has raised.

    ``unanswered`` tells that another role had not answered it in time; ``exception`` is pickled, or empty.
    """

    error: str
    traceback: str = field(default="", repr=False)
    exception: bytes = field(default=b"", repr=False)
    launching: bool = False
    unanswered: bool = False


@dataclass(frozen=True, kw_only=True)
class Stop(Message):
    """A client asks the run to end in order; or the run asks a role."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Loaded(Message):
    """The role's data lies where its process can map it."""


@dataclass(frozen=True, kw_only=True)
class DataProgressed(Message):
    """Another partition has come."""


@dataclass(frozen=True, kw_only=True)
class DataFailed(Message):
    """The data can't be had any more."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Exited(Message):
    """The process is gone; ``leaves`` tells that it was ended since its Dask worker leaves the cluster in order."""

    cause: str
    leaves: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkerLost(Message):
    """A Dask worker has left the cluster; reported by the scheduler, so of no role."""

    address: str


# What a driver tells an agent; of fields that it fills in itself when it sends them, the default means nothing


@dataclass(frozen=True, kw_only=True)
class StartProcess(Message):
    """Start the role process, one of ``roles_on_host``.

    ``device`` and ``num_sharing`` are those of a :class:`~dask_train.process.devices.DeviceUse`. ``counts`` are how
    many there are of each role, where these are others than at first. It ``joins`` where the others train already, and
    is ``alone`` where it was started again without them.
    """

    roles_on_host: int = 1
    device: str | None = None
    num_sharing: int = 1
    counts: Mapping[str, int] = field(default_factory=dict)
    joins: bool = False
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Load(Message):
    """Open the role's data."""


@dataclass(frozen=True, kw_only=True)
class Go(Message):
    """Let the role meet its peers, and enter the user's function."""

    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Met(Message):
    """All training roles wait for each other: their addresses in order; or why they never will.

    ``secret`` is what they know each other by; ``attempts`` tells which start of each it is, where one that is lost is
    replaced in place.
    """

    addresses: Sequence[str] = ()
    error: str = ""
    secret: bytes = field(default=b"", repr=False)
    attempts: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class PeerLost(Message):
    """The process of a training role is gone, by its number among these; it will be replaced in place."""

    peer: int
    lost_attempt: int


@dataclass(frozen=True, kw_only=True)
class Resize(Message):
    """Train in as many workers of this role as given, from the next sync point on."""

    size: int


@dataclass(frozen=True, kw_only=True)
class Kill(Message):
    """End the process at once."""
