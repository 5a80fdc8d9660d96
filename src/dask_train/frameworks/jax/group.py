"""``jax.distributed`` over the ranks of a run: meeting at the coordinator, and leaving without hanging."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from dask_train.errors import LaunchError
from dask_train.frameworks.environment import environment_restored
from dask_train.frameworks.ports import address_of, hold_port

# How long leaving may take: it waits for all others.
LEAVE_S = 5.0
# After how much silence, in seconds, JAX takes a process for dead, and ends the others. Collectives on the CPU find it
# out at once; this is for one that is frozen. 100 s are JAX's own.
HEARTBEAT_S = 20
# How often a rank tries whether rank 0 listens yet.
RETRY_S = 0.05
# What ranks tell rank 0, who they are, and what it answers, the port of the coordinator.
_TOLD = struct.Struct("!i")


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """One rank's place among all.

    Attributes
    ----------
    rank, num_ranks
        Its number, and of how many.
    meeting
        ``host:port`` at which rank 0 awaits the others.
    port_holder
        In rank 0 the socket that is bound to this port, and does not listen yet.
    """

    rank: int
    num_ranks: int
    meeting: str
    port_holder: socket.socket | None


@contextmanager
def process_group(place: RankPlace, timeout_s: float) -> Iterator[None]:
    """``jax.distributed`` while it lasts; the environment is as it was afterwards.

    Raises
    ------
    LaunchError
        A rank did not come within ``timeout_s``, or can't be reached.
    """
    with environment_restored(), ExitStack() as held:
        try:
            _join_or_explain(place, timeout_s, held)
            yield
        finally:
            _leave()


def _join_or_explain(place: RankPlace, timeout_s: float, held: ExitStack) -> None:
    import jax

    try:
        coordinator = _met(place, time.monotonic() + timeout_s, held)
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=place.num_ranks,
            process_id=place.rank,
            initialization_timeout=max(1, round(timeout_s)),
            heartbeat_timeout_seconds=HEARTBEAT_S,
            shutdown_timeout_seconds=round(LEAVE_S),
        )
    except (RuntimeError, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LaunchError(
            f"Rank {place.rank} of {place.num_ranks} could not meet the others at {place.meeting} within "
            f"{timeout_s:g} s: {said}.",
            "A rank did not start or was lost, or a firewall lies between the hosts of the Dask workers.",
            "Look at the other roles' logs, open the ports between the hosts, or allow a longer launch.",
        ) from error


def _met(place: RankPlace, deadline: float, held: ExitStack) -> str:
    """Where JAX's coordinator will be, once all ranks are there: where one is missing, JAX aborts those that wait."""
    host = place.meeting.rpartition(":")[0]
    if place.port_holder is None:
        return f"{host}:{_port_of_coordinator(place, deadline)}"
    port_holder = held.enter_context(hold_port())  # until the end: JAX serves on the port that it holds
    coordinator = address_of(host.strip("[]"), port_holder)
    with place.port_holder as listener, ExitStack() as others:
        listener.listen(place.num_ranks)
        came: dict[int, socket.socket] = {}
        while len(came) < place.num_ranks - 1:
            listener.settimeout(_left(deadline))
            other = others.enter_context(listener.accept()[0])
            with suppress(OSError):  # somebody else has looked what is there
                other.settimeout(_left(deadline))
                (rank,) = _TOLD.unpack(other.recv(_TOLD.size, socket.MSG_WAITALL).ljust(_TOLD.size, b"\0"))
                if 0 < rank < place.num_ranks:
                    came[rank] = other
        for other in came.values():
            other.sendall(_TOLD.pack(port_holder.getsockname()[1]))
    return coordinator


def _port_of_coordinator(place: RankPlace, deadline: float) -> int:
    host, _, port = place.meeting.rpartition(":")
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_left(deadline)) as first:
                first.sendall(_TOLD.pack(place.rank))
                told = first.recv(_TOLD.size, socket.MSG_WAITALL)
        except ConnectionError:  # it does not listen yet
            told = b""
        if len(told) == _TOLD.size:
            return int(_TOLD.unpack(told)[0])
        time.sleep(min(RETRY_S, _left(deadline)))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("not all came in time")
    return left


def _leave() -> None:
    """Leave the others, and go on after :data:`LEAVE_S` where that waits for one that is gone."""
    import jax

    def leave() -> None:
        with suppress(Exception):  # the others may be gone, and this process ends anyhow
            jax.distributed.shutdown()

    if jax.distributed.is_initialized():
        leaving = threading.Thread(target=leave, name="dask-train-leave-jax", daemon=True)
        leaving.start()
        leaving.join(LEAVE_S)
