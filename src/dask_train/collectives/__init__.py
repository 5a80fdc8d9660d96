"""How replicas agree: sums over all ranks of a run, through shared memory on a host. NumPy only, no framework."""

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.process_group import InterHostSum, ProcessGroup
from dask_train.collectives.rendezvous import meet
from dask_train.collectives.shared_memory import SharedMemory, SumBuffer

__all__ = ["InterHostSum", "SumBuffer", "Hosts", "ProcessGroup", "SharedMemory", "meet"]
