"""The ranks of one host meet: the first makes their shared memory and passes it to the others."""

from __future__ import annotations

import os
import time

from dask_train.agreement import sockets
from dask_train.agreement.hosts import Hosts
from dask_train.agreement.memory import SharedMemory
from dask_train.errors import LaunchError


def meet(hosts: Hosts, rank: int, timeout_s: float) -> SharedMemory:
    """The memory that the ranks of this rank's host share.

    Parameters
    ----------
    hosts
        Of all ranks; each rank's address is one that it alone has.
    rank
        This one.
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
    name = hosts.addresses[group[0]]
    descriptor = _lead(name, len(group) - 1, deadline) if place == 0 else _follow(name, group[0], deadline)
    return SharedMemory(descriptor, place, len(group))


def _lead(name: str, num_others: int, deadline: float) -> int:
    descriptor = SharedMemory.create()
    if not num_others:
        return descriptor
    try:
        with sockets.listen(name, num_others) as listener:
            for came in range(num_others):
                listener.settimeout(max(sockets.RETRY_S, deadline - time.monotonic()))
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    raise LaunchError(
                        f"{num_others - came} of the {num_others} other ranks of this host have not come for the "
                        "memory in which gradients are summed.",
                        change="Look at their output, or raise train.rendezvous.timeout.",
                    ) from None
                with connection:
                    sockets.pass_memory(connection, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _follow(name: str, leader: int, deadline: float) -> int:
    refusal = LaunchError(
        f"Rank {leader}, which leads the ranks of this host, is not there.",
        change="Look at its output, or raise train.rendezvous.timeout.",
    )
    connection, descriptor = sockets.connect(name, deadline, refusal)
    connection.close()
    return descriptor
