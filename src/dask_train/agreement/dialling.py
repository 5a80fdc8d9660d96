"""Which way a line goes: through memory on one host, over the network between two."""

from __future__ import annotations

from dask_train.agreement.layout import Slot
from dask_train.agreement.lines import Line, Listener
from dask_train.agreement.memory_lines import MemoryListener, dial_in_memory
from dask_train.agreement.network import Credentials
from dask_train.agreement.network_lines import NetworkListener, dial_over_network


def listeners(address: str, slot: Slot, credentials: Credentials) -> list[Listener]:
    """What answers under an address, for who shares the host and for who does not.

    Raises
    ------
    LaunchError
        The address can't be listened at.
    """
    memory = MemoryListener(address, slot)
    try:
        return [memory, NetworkListener(address, slot, credentials)]
    except BaseException:
        memory.close()
        raise


def dial(address: str, slot: Slot, host: str, credentials: Credentials, timeout_s: float) -> Line:
    """A line from a process of ``host`` to who listens at ``address``; one host is one as in :class:`Hosts`.

    Raises
    ------
    LaunchError
        Nobody answers in time, or it is not of this run.
    """
    if address.rpartition(":")[0].strip("[]") == host.strip("[]"):
        return dial_in_memory(address, slot, timeout_s)
    return dial_over_network(address, slot, credentials, timeout_s)
