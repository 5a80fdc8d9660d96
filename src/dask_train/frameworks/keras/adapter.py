"""Keras in a run of ``fit``: the backend's own adapter, and the memory in which the workers of a host agree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from dask_train.agreement.hosts import Hosts
from dask_train.agreement.meeting import meet
from dask_train.errors import LaunchError
from dask_train.frameworks.base import Framework, Me
from dask_train.roles import AddressBook


class KerasFramework(Framework):
    """The adapter of ``fit``.

    Parameters
    ----------
    backend
        Keras' name of the backend.
    inner
        The adapter of that backend, which gives processes their threads and ports, and makes tensors.

    Notes
    -----
    The session has ``meeting``: the :class:`~dask_train.agreement.hosts.Hosts` of all workers, and the
    :class:`~dask_train.agreement.memory.SharedMemory` of this worker's host; with parameter servers it has ``host``
    instead. And ``tls``: by what certificates roles of different hosts know each other. The backend's own network is
    not used.
    """

    name = "keras"

    def __init__(self, backend: str, inner: Framework) -> None:
        self._backend, self._inner = backend, inner
        self.views, self.role_bytes = inner.views, inner.role_bytes

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """True for several workers without parameter servers."""
        return "ps" not in counts and counts.get("worker", 0) > 1

    def can_replace(self, role: str) -> bool:
        """A lost parameter server has lost its weights: all start again, from the last checkpoint."""
        return role != "ps"

    def prepare(self, me: Me) -> str:
        """Import Keras on its backend, with this role's threads and, for a worker, a port.

        Raises
        ------
        LaunchError
            Keras or its backend can't be imported.
        """
        os.environ["KERAS_BACKEND"] = self._backend
        address = self._inner.prepare(me)
        try:
            import keras  # noqa: F401
        except ImportError as error:
            raise LaunchError(
                f"Keras can't be imported for {me.role} {me.rank}: {error}.",
                change="Install it on every Dask worker: pip install 'dask-train[tensorflow]'.",
            ) from error
        return address

    @contextmanager
    def rendezvous(self, me: Me, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Meet the workers of this host; those of other hosts meet when they train."""
        if me.role != "worker" or "ps" in me.counts:
            yield {"host": me.host, "tls": me.tls}
            return
        hosts = Hosts.of(peers["worker"])
        with closing(meet(hosts, me.rank, timeout_s)) as memory:
            yield {"meeting": (hosts, memory), "tls": me.tls}

    def empty(self, size: int) -> np.ndarray | None:
        """As the backend's adapter has it."""
        return self._inner.empty(size)

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """As the backend's adapter has it."""
        return self._inner.to_batch(arrays)
