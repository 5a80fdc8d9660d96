"""Lines between two processes of a host: messages over a socket, arrays in memory that both map.

Each line has memory of its own, which is gone with its two ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import time

from dask_train.agreement import sockets
from dask_train.agreement.layout import Slot
from dask_train.agreement.lines import Line, Listener
from dask_train.errors import LaunchError


class MemoryListener(Listener):
    """Where lines of this host come from.

    Parameters
    ----------
    address
        ``host:port`` that this process alone has; gives the socket its name.
    slot
        The arrays that travel on each line.
    """

    def __init__(self, address: str, slot: Slot) -> None:
        super().__init__(sockets.listen(_name(address), 64))
        self._slot = slot

    def answer(self, connection: socket.socket) -> Line:
        """See :meth:`Listener.answer`."""
        descriptor = os.memfd_create("dask-train-line", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, 2 * self._slot.size_bytes)
            memory = mmap.mmap(descriptor, 2 * self._slot.size_bytes)
            sockets.pass_memory(connection, descriptor)
        finally:
            os.close(descriptor)
        return Line(connection, self._slot.arrays(memory, 1), self._slot.arrays(memory, 0))


def dial_in_memory(address: str, slot: Slot, timeout_s: float) -> Line:
    """A line to who listens under that address on this host.

    Raises
    ------
    LaunchError
        Nobody does in time, or it is of another user.
    """
    refusal = LaunchError(
        f"Nobody answers as {address} on this host.",
        "That process has ended, or is in a container that shares this host's address, but not its network.",
        "See its output with run.logs('ps').",
    )
    connection, descriptor = sockets.connect(_name(address), time.monotonic() + timeout_s, refusal)
    try:
        memory = mmap.mmap(descriptor, 2 * slot.size_bytes)
    except OSError:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return Line(connection, slot.arrays(memory, 0), slot.arrays(memory, 1))


def _name(address: str) -> str:
    return f"line/{address}"
