"""What is known of a run: a value, replaced by the next one with each event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dask_train.run.commands import Finish, Key
from dask_train.run.recovery import RecoveryPolicy


class Phase(StrEnum):
    """Where a run is."""

    PLACING = "waiting for room"
    LAUNCHING = "launching"
    RUNNING = "running"
    COMPLETING = "completing"  # the training roles have returned; the others are asked to
    STOPPING = "stopping"  # asked to stop; killed at the deadline
    RESTARTING = "restarting"  # all roles are being killed, and start again when they are gone
    ENDING = "ending"  # all roles are being killed, and the run is over when they are gone
    OVER = "over"


class RolePhase(StrEnum):
    """Where a role is."""

    PLACING = "waiting for room"
    STARTING = "starting"
    READY = "ready"
    MEETING = "meeting its peers"
    RUNNING = "running"
    RETURNED = "returned"
    KILLED = "being killed"
    GONE = "gone"


# Phases in which a process of the role exists, or may.
ALIVE = (RolePhase.STARTING, RolePhase.READY, RolePhase.MEETING, RolePhase.RUNNING, RolePhase.KILLED)


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What was asked for, as far as the course of the run depends on it.

    Attributes
    ----------
    counts
        How many there are of each role.
    training
        The roles whose return completes the run.
    services
        The roles that only serve the others, and are ended when these have returned.
    with_data
        The roles that are given data.
    replaceable
        The roles that the framework can replace while the others continue.
    agree
        Whether the training roles wait for each other, so that the loss of one is an exception in the others.
    in_place
        Whether these can continue with a new one in place of a lost one.
    one_host
        Whether all training roles have to be on one host.
    needs_agents
        Whether only the agent of a lost one knows which rows it has read. If its Dask worker is lost, too, it is not
        replaced in place then.
    recovery
        What becomes of a loss; None ends the run.
    placement_s, launch_s, rendezvous_s, progress_s, stop_s
        Deadlines, in seconds.
    """

    counts: Mapping[str, int]
    training: frozenset[str]
    services: frozenset[str] = frozenset()
    with_data: frozenset[str] = frozenset()
    replaceable: frozenset[str] = frozenset()
    agree: bool = False
    in_place: bool = False
    one_host: bool = False
    needs_agents: bool = False
    recovery: RecoveryPolicy | None = None
    placement_s: float = 60.0
    launch_s: float = 60.0
    rendezvous_s: float = 30.0
    progress_s: float = 120.0
    stop_s: float = 5.0

    @property
    def apart(self) -> bool:
        """Return whether no training role waits for another, as with parameter servers."""
        return not (self.agree or self.in_place)

    def role_keys(self) -> tuple[Key, ...]:
        """Every role of the run, by name and rank."""
        return tuple((role, rank) for role, count in self.counts.items() for rank in range(count))

    def training_roles(self) -> tuple[str, ...]:
        """Return the training roles in the order in which their ranks are numbered through: the chief comes first."""
        return tuple(sorted((role for role in self.counts if role in self.training), key=lambda role: role != "chief"))

    def training_keys(self) -> tuple[Key, ...]:
        """Every training role by name and rank, in the order of their ranks over all."""
        return tuple((role, rank) for role in self.training_roles() for rank in range(self.counts[role]))


@dataclass(frozen=True, kw_only=True)
class Role:
    """One role of the run, in its present attempt.

    Attributes
    ----------
    phase
        Where it is.
    attempt
        Which start of it this is, from 0.
    address
        Its Dask worker.
    peer
        Where its peers reach it, ``host:port`` or empty; until an attempt is ready, that of the one before.
    pid
        Its process; 0 if there is none.
    loaded
        Whether its data lies ready.
    since, progressed, looked_into
        When it came to this phase, when it last made progress, and when it was last looked into because it made none.
    fenced
        Why its process was ended, so that another one can take its place; empty if it was not.
    awaits_client
        Whether it waits for a value of the client's.
    meets_at, meets_size, meets_or
        Where it waits for the other training roles; empty while it does not. And how many they are to be; 0 if it
        does not know. And which other number it meets as well; 0 if none.
    alone
        Whether it was started again alone, while others train.
    """

    phase: RolePhase = RolePhase.PLACING
    attempt: int = 0
    address: str = ""
    peer: str = ""
    pid: int = 0
    loaded: bool = False
    since: float = 0.0
    progressed: float = 0.0
    looked_into: float = 0.0
    fenced: str = ""
    awaits_client: bool = False
    meets_at: str = ""
    meets_size: int = 0
    meets_or: int = 0
    alone: bool = False


class ResizePhase(StrEnum):
    """How far another number of workers is."""

    STARTING = "those that join are started"
    TOLD = "the workers have been told"
    SHARED = "batches are shared by that many; those that leave have some left"
    SETTLED = "it is so, or can't be"


@dataclass(frozen=True, kw_only=True)
class SizeChange:
    """Another number of workers that was asked for.

    Attributes
    ----------
    number
        Which request it is.
    size
        How many there are to be.
    phase
        How far it is.
    why
        Why it can't be; empty if it can.
    """

    number: int
    size: int
    phase: ResizePhase = ResizePhase.STARTING
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """A role has raised; whether that is its own fault is seen when no loss is reported within a moment.

    ``unanswered`` tells that it raised because it had waited too long; then all are asked who does not answer.
    """

    key: Key
    error: str
    launching: bool
    until: float
    unanswered: bool = False


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run at one moment.

    Attributes
    ----------
    plan
        What was asked for.
    phase, since
        Where the run is, and since when.
    roles
        Every role.
    data_ready
        Whether all partitions are computed.
    met
        Whether the training roles have met, and wait for each other from then on, as where the plan says so.
    met_on
        On which host they have met; of several, the first one by its name.
    resize
        The number of workers that was asked for last while the run trains; None if none was.
    progressed
        When anything last made progress.
    losses
        The cause of every loss so far, in order; as many as were recovered, and perhaps a last one.
    num_restarts
        Number of recoveries of the run.
    num_left
        Number of these whose Dask worker had left the cluster in order: no policy counts them.
    suspicion
        An exception that may be the echo of a loss that is not known yet.
    diagnosing
        Whether the picture of a stall is being collected.
    client_waits
        Since when the client waits for the run; None while it does not.
    notes
        What became of roles after the training roles had returned, as sentences.
    ending
        What the run will finish with, when all processes are gone.
    """

    plan: RunPlan
    phase: Phase = Phase.PLACING
    since: float = 0.0
    roles: Mapping[Key, Role] = field(default_factory=dict)
    data_ready: bool = False
    met: bool = False
    met_on: str = ""
    resize: SizeChange | None = None
    progressed: float = 0.0
    losses: tuple[str, ...] = ()
    num_restarts: int = 0
    num_left: int = 0
    suspicion: Suspicion | None = None
    diagnosing: bool = False
    client_waits: float | None = None
    notes: tuple[str, ...] = ()
    ending: Finish | None = None

    @property
    def trains_together(self) -> bool:
        """Return whether the training roles have met, unless none waits for another."""
        return self.met or self.plan.apart

    def __str__(self) -> str:
        counts: dict[str, int] = {}
        for role in self.roles.values():
            counts[role.phase] = counts.get(role.phase, 0) + 1
        return f"{self.phase}: " + ", ".join(f"{count} {phase}" for phase, count in counts.items())


def name_of(key: Key) -> str:
    """``worker 0``, as it stands in messages."""
    return f"{key[0]} {key[1]}"
