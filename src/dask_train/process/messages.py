"""The messages between a run's driver, its agents and its role processes: a frozen dataclass each, and how they travel.

Those that change the course of a run, or follow from it, are in :mod:`dask_train.run.messages`.

Between an agent and its role processes they go as they are, pickled (:mod:`dask_train.transport.frames`). Between a
driver and its agents they go through the scheduler, which forwards them without understanding them and may lack this
package: there a message is plain values, made and read by :func:`to_plain` and :func:`from_plain` alone.

Role, rank and attempt are stamped once, where a message leaves the side that knows them: by the agent on what its role
processes tell, by the driver on its commands. The time of an event is stamped by the driver when it takes it over, on
the clock of all its deadlines. Messages are numbered on their way through the scheduler
(:mod:`dask_train.worker.mail`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dask_train.checkpoint.manifest import Cover
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.data.letterbox import LetterboxPlace
from dask_train.data.parcel import Parcel
from dask_train.data.rows import HeldPartitions
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.frameworks.base import RoleInfo
from dask_train.masking import encodable
from dask_train.run.messages import Message, RoleProcess
from dask_train.settings.process import Settings
from dask_train.transport.frames import Files

# What a role process tells its run


@dataclass(frozen=True, kw_only=True)
class Progress(Message):
    """What the role does, and whether it has made progress since its last report.

    ``spent`` are the seconds of its time so far, by activity, and ``busy_with`` is the activity now; see
    :mod:`dask_train.role.time_spent`. ``rows`` have gone through its hands so far. Of its process ``memory_bytes`` is
    what it has for itself, and ``cpu_s`` the processors' time that it has taken, all threads together.
    """

    steps: int
    doing: str
    moved: bool
    awaits_client: bool
    spent: Mapping[str, float] = field(default_factory=dict)
    busy_with: str = ""
    rows: int = 0
    memory_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Reported(Message):
    """Reports of the user's function, each with role, rank, attempt and the time when it was made."""

    scores: Sequence[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Notice(Message):
    """Something out of the ordinary, for the run's owner."""

    text: str


@dataclass(frozen=True, kw_only=True)
class WentOn(Message):
    """The role resumes from a checkpoint, in which there are these batches."""

    covers: Sequence[Cover]


@dataclass(frozen=True, kw_only=True)
class Question(Message):
    """Root of what a role asks for, by a number that it never uses again."""

    question: int = -1
    asks_for: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class DataSetWanted(Question):
    """The role asks for a published data set."""

    asks_for = "a data set"
    name: str


@dataclass(frozen=True, kw_only=True)
class GroupWanted(Question):
    """The role asks for a group of a data set that is streamed; groups before ``needed_from`` are released."""

    asks_for = "a group of partitions"
    stream: Stream
    group: int
    needed_from: int


@dataclass(frozen=True, kw_only=True)
class StreamLeft(Message):
    """The role needs no more groups of a stream."""

    stream: Stream


@dataclass(frozen=True, kw_only=True)
class RowsWanted(Question):
    """The role asks its agent for rows that lie on other hosts; int64 ``(n,)`` each."""

    asks_for = "rows from other hosts"
    stream: Stream
    partition: np.ndarray
    row: np.ndarray


# Both ways


@dataclass(frozen=True, kw_only=True)
class Value(Message):
    """A pickled value, for the run's owner, or for a role."""

    value: bytes = field(repr=False)


# What an agent, or the scheduler, tells a driver


@dataclass(frozen=True, kw_only=True)
class Accounted(Message):
    """Which batches the process has taken in all; see :mod:`dask_train.data.account`. Told before its last word."""

    account: Sequence[Sequence[int]]


# The state of a process that SIGSTOP has stopped, in words.
STOPPED = "stopped by a signal (SIGSTOP or a debugger)"


@dataclass(frozen=True, kw_only=True)
class Pictured(Message):
    """What the process does: its state for the kernel, its last word, since when, its stacks, what it printed last."""

    pid: int
    state: str
    doing: str
    for_s: float
    steps: int
    stacks: str
    printed: str = ""


# What a driver tells an agent


@dataclass(frozen=True, kw_only=True)
class DataSetPlaces(Message):
    """What a data set of a role is, so of no single rank: its pickled table, and its segments in order.

    ``where`` are the addresses of the Dask workers that hold each, as the driver has asked once for all.
    """

    role: str
    number: int
    table: bytes = field(repr=False)
    keys: Sequence[Any] = field(repr=False)
    where: Sequence[Sequence[str]] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Diagnose(Message):
    """Take a picture of the process."""


@dataclass(frozen=True, kw_only=True)
class DataSetFound(DataSetWanted):
    """The data set is known under this number, unless there is an error.

    With ``to_come`` it is still being computed, and another answer will follow.
    """

    number: int = 0
    error: str = ""
    to_come: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupComputed(GroupWanted):
    """The group is in Dask's memory, unless there is an error: its pickled schema, and its segments.

    Of each segment the partition's number, the key, and the addresses of the Dask workers that hold it. With
    ``to_come`` it is still being computed, and another answer will follow.
    """

    schema: bytes = field(default=b"", repr=False)
    parts: Sequence[tuple[int, Any, Sequence[str]]] = field(default=(), repr=False)
    error: str = ""
    to_come: bool = False


# What an agent tells its role process


@dataclass(frozen=True, kw_only=True)
class Mapped(Files):
    """Data that a role process can map, in files in memory."""

    table: Table
    held: HeldPartitions


@dataclass(frozen=True, kw_only=True)
class KeptFiles(Files):
    """Memory in which roles keep their state: see :mod:`dask_train.data.state_memory`."""


@dataclass(frozen=True, kw_only=True)
class BeginRole(Message):
    """The identity of the process, its task and its settings; framework and function are pickled.

    Where it ``needs_device``, it was given one, and must not compute on CPUs. Large results go into the ``letterbox``.
    It ``joins`` where the others train already, and is ``alone`` where it was started again without them. With ``data``
    it keeps its state there.
    """

    me: RoleInfo
    attempt: int
    framework: bytes = field(repr=False)
    function: Parcel = field(repr=False)
    checkpoint: CheckpointPlace | None
    scratch: str
    settings: Settings = field(default_factory=Settings)
    needs_device: bool = False
    letterbox: LetterboxPlace | None = None
    joins: bool = False
    data: KeptFiles | None = None
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class CallFunction(Message):
    """Addresses of the peers, the role's own data, and timeouts of the rendezvous and of waits for more data."""

    peers: Mapping[str, Sequence[str]]
    timeout_s: float
    data_timeout_s: float
    data: Mapped | None


@dataclass(frozen=True, kw_only=True)
class Answer(Message):
    """The data that the process has asked for, unless there is an error; ``stalled`` tells its kind.

    With ``to_come`` it is still being computed or copied, and another answer will follow.
    """

    question: int
    error: str = ""
    stalled: bool = False
    to_come: bool = False
    number: int = 0
    data: Mapped | None = None
    columns: Sequence[np.ndarray] = ()


# How they travel


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields of a message, as they are."""
    return {each.name: getattr(message, each.name) for each in dataclasses.fields(message)}


def to_plain(message: Message, of: RoleProcess | None = None) -> list[Any]:
    """Return a message in plain values: its name, its fields, and the role process that it is from, or for."""
    fields = {name: encodable(value) if isinstance(value, str) else value for name, value in fields_of(message).items()}
    return [type(message).__name__, fields, None if of is None else list(of)]


def from_plain(plain: Sequence[Any]) -> tuple[Message, RoleProcess | None]:
    """Return the message, and the role process, of which :func:`to_plain` made this."""
    name, fields, of = plain
    if "stream" in fields:
        fields = {**fields, "stream": Stream(*fields["stream"])}
    return _CLASSES[name](**fields), None if of is None else RoleProcess(*of)


def all_messages(root: type[Message] = Message) -> Iterator[type[Message]]:
    """Every kind of message."""
    for kind in root.__subclasses__():
        yield kind
        yield from all_messages(kind)


_CLASSES = {kind.__name__: kind for kind in all_messages()}
