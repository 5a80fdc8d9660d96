"""Abstract Unix sockets between processes of a host, over which one passes the other memory.

Their names are gone with the process, and they can't be reached from another network. Only processes of the same user
are dealt with (``SO_PEERCRED``).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

from dask_train.errors import LaunchError

RETRY_S = 0.02
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred in socket(7)


def listen(name: str, backlog: int) -> socket.socket:
    """Return a socket that listens under a name."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_abstract(name))
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def pass_memory(connection: socket.socket, descriptor: int) -> None:
    """Give the descriptor to a connected process.

    Raises
    ------
    LaunchError
        It is of another user.
    OSError
        It is gone.
    """
    _check_user(connection)
    socket.send_fds(connection, [b"m"], [descriptor])


def connect(
    name: str,
    deadline: float,
    refusal: LaunchError,
    prove: Callable[[socket.socket], None] | None = None,
    look: Callable[[], object] = lambda: None,
) -> tuple[socket.socket, int]:
    """Return a connection to the process that listens under a name, and the descriptor that it passes.

    Parameters
    ----------
    deadline
        In ``time.monotonic()`` seconds.
    refusal
        What is raised if no process listens in time, or none passes anything.
    prove
        Proves to the listener that this process belongs to it, and the reverse; may raise ``EOFError``.
    look
        Called again and again until one listens; what it raises is raised.

    Raises
    ------
    LaunchError
        That, or it is of another user.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(max(RETRY_S, deadline - time.monotonic()))  # else it waits where too many wait already
        while True:
            try:
                connection.connect(_abstract(name))
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise refusal from error
                look()
                time.sleep(RETRY_S)
        _check_user(connection)
        connection.settimeout(max(RETRY_S, deadline - time.monotonic()))
        try:
            if prove is not None:
                prove(connection)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        except (EOFError, OSError) as error:
            raise refusal from error
        if not descriptors:
            raise refusal
    except BaseException:
        connection.close()
        raise
    return connection, descriptors[0]


def _abstract(name: str) -> str:
    return f"\0dask-train/{name}"


def _check_user(connection: socket.socket) -> None:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, user, _ = _PEER_CREDENTIALS.unpack(credentials)
    if user != os.geteuid():
        raise LaunchError(
            f"Process {pid} of user {user} is a rank of this run on this host, and this process is of user "
            f"{os.geteuid()}.",
            change="Let all Dask workers of a host run as one user.",
        )
