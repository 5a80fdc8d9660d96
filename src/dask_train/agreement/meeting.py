"""The ranks of one host meet: the first makes their shared memory and passes it to the others.

Over an abstract Unix socket, whose name is gone with the process and which nobody reaches from another network. Only
processes of the same user are given the memory (``SO_PEERCRED``).
"""

from __future__ import annotations

import os
import socket
import struct
import time

from dask_train.agreement.hosts import Hosts
from dask_train.agreement.memory import SharedMemory
from dask_train.errors import LaunchError

_RETRY_S = 0.02
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred in socket(7)


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
    name = f"\0dask-train/{hosts.addresses[group[0]]}"
    descriptor = _lead(name, len(group) - 1, deadline) if place == 0 else _follow(name, group[0], deadline)
    return SharedMemory(descriptor, place, len(group))


def _lead(name: str, num_others: int, deadline: float) -> int:
    descriptor = SharedMemory.create()
    if not num_others:
        return descriptor
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(name)
            listener.listen(num_others)
            for came in range(num_others):
                listener.settimeout(max(_RETRY_S, deadline - time.monotonic()))
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    raise LaunchError(
                        f"{num_others - came} of the {num_others} other ranks of this host have not come for the "
                        "memory in which gradients are summed.",
                        change="Look at their output, or raise train.rendezvous.timeout.",
                    ) from None
                with connection:
                    check_user(connection)
                    socket.send_fds(connection, [b"m"], [descriptor])
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _follow(name: str, leader: int, deadline: float) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            try:
                connection.connect(name)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise LaunchError(
                        f"Rank {leader}, which leads the ranks of this host, is not there: {error}.",
                        change="Look at its output, or raise train.rendezvous.timeout.",
                    ) from error
                time.sleep(_RETRY_S)
        check_user(connection)
        connection.settimeout(max(_RETRY_S, deadline - time.monotonic()))
        try:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        except OSError as error:
            descriptors = []
            why = f": {error}"
        else:
            why = ""
    if not descriptors:
        raise LaunchError(f"Rank {leader}, which leads the ranks of this host, has sent no memory{why}.")
    return descriptors[0]


def check_user(connection: socket.socket) -> None:
    """Refuse to deal with a process of another user.

    Raises
    ------
    LaunchError
        It is one.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, user, _ = _PEER_CREDENTIALS.unpack(credentials)
    if user != os.geteuid():
        raise LaunchError(
            f"Process {pid} of user {user} is a rank of this run on this host, and this process is of user "
            f"{os.geteuid()}.",
            change="Let all Dask workers of a host run as one user.",
        )
