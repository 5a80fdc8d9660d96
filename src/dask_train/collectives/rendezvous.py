"""The ranks of one host meet: the first makes their shared memory and passes it to the others."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.errors import LaunchError
from dask_train.transport import sockets
from dask_train.transport.connections import GREETING_S, Credentials
from dask_train.transport.reception import Reception, ended_after

_BACKLOG = 64


def meet(hosts: Hosts, rank: int, key: bytes, timeout_s: float) -> SharedMemory:
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
        descriptor = _lead(name, len(group) - 1, credentials, deadline)
    else:
        descriptor = _follow(name, group[0], credentials, deadline)
    return SharedMemory(descriptor, place, len(group))


def _lead(name: str, num_others: int, credentials: Credentials, deadline: float) -> int:
    descriptor = SharedMemory.create()
    if not num_others:
        return descriptor

    def greet(connection: socket.socket) -> socket.socket:
        with ended_after(connection, GREETING_S):
            credentials.prove(connection, listens=True)
            sockets.pass_memory(connection, descriptor)
        return connection

    try:
        with closing(Reception(sockets.listen(name, _BACKLOG), greet)) as reception:
            for came in range(num_others):
                try:
                    reception.next(deadline - time.monotonic()).close()
                except TimeoutError:
                    raise LaunchError(
                        f"{num_others - came} of the {num_others} other ranks of this host have not come for the "
                        "memory in which gradients are summed.",
                        change="Look at their output, or raise train.rendezvous.timeout.",
                    ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _follow(name: str, leader: int, credentials: Credentials, deadline: float) -> int:
    refusal = LaunchError(
        f"Rank {leader}, which leads the ranks of this host, is not there.",
        change="Look at its output, or raise train.rendezvous.timeout.",
    )

    def prove(connection: socket.socket) -> None:
        with ended_after(connection, GREETING_S):
            credentials.prove(connection, listens=False)

    connection, descriptor = sockets.connect(name, deadline, refusal, prove)
    connection.close()
    return descriptor
