"""The ranks of one host meet: the first makes their shared memory and passes it to the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.errors import LaunchError
from dask_train.transport import sockets
from dask_train.transport.connections import GREETING_S, Credentials
from dask_train.transport.reception import Reception, ended_after

_BACKLOG = 64
# How often one that waits looks whether it still has to.
_LOOK_S = 0.05
# A leader's connection ends with its process; the run tells of it a moment later.
_TOLD_S = 5.0


def meet(
    hosts: Hosts, rank: int, key: bytes, timeout_s: float, look: Callable[[], object] | None = None
) -> SharedMemory:
    """Return the memory that the ranks of this rank's host share.

    Parameters
    ----------
    hosts
        Of all ranks; each rank's address is one that it alone has.
    rank
        This one.
    key
        Key of the run: a process without it is not let in, and does not know the name under which ranks meet.
    timeout_s
        How long the others of the host may take, in seconds.
    look
        Called again and again while this waits; what it raises ends the wait. Default: None, nothing is called.

    Raises
    ------
    LaunchError
        They did not come in time, or one of them is of another user.
    """
    group = hosts.group_of(rank)
    place = group.index(rank)
    deadline = time.monotonic() + timeout_s
    address = hosts.addresses[group[0]]
    credentials = Credentials(key=key)
    name = credentials.name_of(address)
    if place == 0:
        return _lead(name, len(group), credentials, deadline, look or _nothing)
    return SharedMemory(_follow(name, group[0], credentials, deadline, look), place, len(group))


def _nothing() -> None:
    """Look at nothing."""


def _lead(
    name: str, num_ranks: int, credentials: Credentials, deadline: float, look: Callable[[], object]
) -> SharedMemory:
    descriptor = SharedMemory.create()
    memory = SharedMemory(descriptor, 0, num_ranks)
    num_others = num_ranks - 1
    if not num_others:
        return memory

    def greet(connection: socket.socket) -> socket.socket:
        with ended_after(connection, GREETING_S):
            credentials.prove(connection, listens=True)
            sockets.pass_memory(connection, descriptor)
        return connection

    try:
        with closing(Reception(sockets.listen(name, _BACKLOG), greet, num_others)) as reception:
            for came in range(num_others):
                try:
                    _next(reception, deadline, look).close()
                except TimeoutError:
                    raise LaunchError(
                        f"{num_others - came} of the {num_others} other ranks of this host have not come for the "
                        "memory in which gradients are summed.",
                        change="Look at their output, or raise train.rendezvous.timeout.",
                    ) from None
    except BaseException:
        memory.leave()  # some may have it, and wait there
        memory.close()
        raise
    return memory


def _next(reception: Reception[socket.socket], deadline: float, look: Callable[[], object]) -> socket.socket:
    while True:
        look()
        left_s = deadline - time.monotonic()
        try:
            return reception.next(min(left_s, _LOOK_S))
        except TimeoutError:
            if left_s <= _LOOK_S:
                raise


def _follow(
    name: str, leader: int, credentials: Credentials, deadline: float, look: Callable[[], object] | None
) -> int:
    refusal = LaunchError(
        f"Rank {leader}, which leads the ranks of this host, is not there.",
        change="Look at its output, or raise train.rendezvous.timeout.",
    )

    def prove(connection: socket.socket) -> None:
        with ended_after(connection, GREETING_S):
            credentials.prove(connection, listens=False)

    try:
        connection, descriptor = sockets.connect(name, deadline, refusal, prove, look or _nothing)
    except LaunchError:
        told_by = min(deadline, time.monotonic() + _TOLD_S)
        while look is not None and time.monotonic() < told_by:
            look()
            time.sleep(_LOOK_S)
        raise
    connection.close()
    return descriptor
