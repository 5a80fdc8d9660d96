"""What the adapters of ``fit`` have in common: the memory in which the workers of a host agree."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.rendezvous import meet
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.roles import AddressBook


class FitFramework(Framework):
    """A framework whose workers sum what they have found in every step, without its own network.

    Parameters
    ----------
    inner
        The adapter of the framework, which gives processes their threads, and makes tensors.
    in_place
        Whether a lost worker is replaced while the others wait. They meet as they begin to train then. Default: false.

    Notes
    -----
    The session has ``meeting``: the :class:`~dask_train.collectives.hosts.Hosts` of all workers, and the
    :class:`~dask_train.collectives.shared_memory.SharedMemory` of this worker's host; None if lost workers are
    replaced in place, as they meet when they train. With parameter servers it has ``host`` instead. And ``tls``: by
    what certificates roles of different hosts know each other.
    """

    def __init__(self, inner: Framework, *, in_place: bool = False) -> None:
        self._inner, self._in_place = inner, in_place
        self._key = secrets.token_bytes(32)  # travels with this to the roles of the run
        self.views, self.role_bytes, self.shared_bytes = inner.views, inner.role_bytes, inner.shared_bytes
        self._port_holder: socket.socket | None = None

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether there are several workers and no parameter servers."""
        return "ps" not in counts and counts.get("worker", 0) > 1

    def can_replace(self, role: str) -> bool:
        """Return whether a lost role can be replaced: not a parameter server, which has lost its weights."""
        return role != "ps"

    @property
    def replaces_in_place(self) -> bool:
        """Return whether a lost worker is replaced while the others wait."""
        return self._in_place

    def load(self, me: RoleInfo) -> None:
        """As the framework's adapter has it."""
        self._inner.load(me)

    def prepare(self, me: RoleInfo) -> str:
        """Import the framework, with this role's threads; hold a port if others dial this role."""
        self.load(me)
        if me.role not in ("worker", "ps"):
            return ""
        self._port_holder = hold_port()
        return address_of(me.host, self._port_holder)

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Meet the workers of this host; those of other hosts meet when they train."""
        if me.role != "worker" or "ps" in me.counts:
            yield {"host": me.host, "tls": me.tls}
            return
        if self._in_place and me.counts["worker"] > 1:
            yield {"meeting": None, "tls": me.tls}
            return
        hosts = Hosts.of(peers["worker"])
        with closing(meet(hosts, me.rank, self._key, timeout_s)) as memory:
            yield {"meeting": (hosts, memory), "tls": me.tls}

    @contextmanager
    def alone(self, me: RoleInfo) -> Iterator[Mapping[str, Any]]:  # noqa: ARG002
        """Run the framework as the user has set it, with memory for one rank alone."""
        with closing(SharedMemory(SharedMemory.create(), 0, 1)) as memory:
            yield {"meeting": (Hosts.of(["here:0"]), memory), "tls": None}

    def lack_of_device(self) -> str:
        """As the framework's adapter has it."""
        return self._inner.lack_of_device()

    def empty(self, size: int) -> np.ndarray | None:
        """As the framework's adapter has it."""
        return self._inner.empty(size)

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """As the framework's adapter has it."""
        return self._inner.to_batch(arrays)
