"""Which way a line goes: through memory on one host, over the network between two."""

from __future__ import annotations

import time

from dask_train.errors import LaunchError
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.channels import Channel
from dask_train.transport.connections import Credentials
from dask_train.transport.memory_channels import dial_in_memory, receive_in_memory
from dask_train.transport.network_channels import dial_over_network, receive_over_network
from dask_train.transport.reception import Reception

_AGAIN_S = 0.1


def receptions(address: str, slot: ArraySlot, credentials: Credentials) -> list[Reception[Channel]]:
    """Return the receptions of lines to an address: of processes on the same host, and of others.

    Raises
    ------
    LaunchError
        The address can't be listened at.
    """
    memory = receive_in_memory(address, slot, credentials)
    try:
        return [memory, receive_over_network(address, slot, credentials)]
    except BaseException:
        memory.close()
        raise


def dial(address: str, slot: ArraySlot, host: str, credentials: Credentials, timeout_s: float) -> Channel:
    """Return a line from a process of ``host`` to the server at ``address``; one host is one as in :class:`Hosts`.

    A process that is rejected tries again: strangers may have taken all places for a while.

    Raises
    ------
    LaunchError
        No peer answers in time, or it is not of this run.
    """
    is_here = address.rpartition(":")[0].strip("[]") == host.strip("[]")
    dial_there = dial_in_memory if is_here else dial_over_network
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return dial_there(address, slot, credentials, max(0.0, deadline - time.monotonic()))
        except LaunchError:
            if time.monotonic() + _AGAIN_S > deadline:
                raise
            time.sleep(_AGAIN_S)
