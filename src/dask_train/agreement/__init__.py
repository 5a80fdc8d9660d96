"""How replicas agree: sums over all ranks of a run, through shared memory on a host. NumPy only, no framework."""

from dask_train.agreement.hosts import Hosts
from dask_train.agreement.meeting import meet
from dask_train.agreement.memory import Channel, SharedMemory
from dask_train.agreement.replicas import Across, Replicas

__all__ = ["Across", "Channel", "Hosts", "Replicas", "SharedMemory", "meet"]
