"""The seam between a run and a framework: what an adapter says, and what it does in a role process.

One adapter a framework, in a folder of its own, found by :mod:`dask_train.frameworks.registry`. An adapter is small
and picklable until :meth:`Framework.prepare`; it imports its framework there and no earlier. It never imports the
cluster, nor another adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.roles import AddressBook

if TYPE_CHECKING:
    from dask_train.session import Session

# Roles that train, and that a run waits for; the chief comes first where ranks are numbered over both.
TRAINING_ROLES = ("chief", "worker")


@dataclass(frozen=True, kw_only=True)
class Me:
    """Which role process this is.

    Attributes
    ----------
    role, rank
        Its role, and its number there.
    counts
        How many there are of each role in the run.
    host
        The name or address under which its peers reach this host.
    num_threads
        Its share of the host's cores.
    tls
        The cluster's certificates, for connections of an adapter's own: ``ca_file``, ``cert``, ``key`` (paths, or PEM
        text) and perhaps ``ciphers``. None where the cluster has no TLS.
    """

    role: str
    rank: int
    counts: Mapping[str, int]
    host: str
    num_threads: int
    tls: Mapping[str, str] | None = field(default=None, repr=False)


class Framework:
    """A framework as a run needs it; this class is the adapter for none, where batches are NumPy arrays.

    Attributes
    ----------
    name
        What users pass as ``framework=``.
    views
        Whether batches may be views of the rows in shared memory: ``"read-only"``; ``"writable"`` where the framework
        asks for writable memory and never writes to it; None where users may write to its tensors.
    role_bytes
        What a role process takes for itself once its framework is imported, in bytes; reckoned with where data is
        large.
    """

    name = "numpy"
    views: str | None = "read-only"
    role_bytes = 100 << 20

    def check(self, counts: Mapping[str, int]) -> None:
        """Refuse roles that the framework can't serve, in the client, before anything starts; imports nothing.

        Raises
        ------
        ValueError
            What can't be, why, and what to change.
        """

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Whether the training roles of such a run wait for each other, so that the loss of one ends all."""
        return False

    def can_replace(self, role: str) -> bool:
        """Whether one role process can be started again while the others go on."""
        return True

    def stays_until_the_end(self, counts: Mapping[str, int]) -> bool:
        """Whether a role process whose function has returned stays, because the others may still need its server."""
        return False

    def default_role(self, role: str) -> Callable[[Session], Any] | None:
        """What a role does for which the user gave no function; None where there is no such default."""
        return serve_until_stopped if role == "ps" else None

    def prepare(self, me: Me) -> str:
        """In the role process, once: import the framework, give it its threads, bind its port.

        Returns
        -------
        str
            ``host:port`` at which peers will reach this role; empty where nobody has to.
        """
        return ""

    def rendezvous(self, me: Me, peers: AddressBook, timeout_s: float) -> AbstractContextManager[Mapping[str, Any]]:
        """In the role process: meet the others; the environment, servers and groups of this role while it lasts.

        Parameters
        ----------
        me
            As :meth:`prepare` had it.
        peers
            What every role's :meth:`prepare` returned, by role and rank.
        timeout_s
            How long the others may take, in seconds.

        Returns
        -------
        context manager of a mapping
            What the session shows under these names, such as ``cluster_spec`` and ``server``; a value that is a
            function is called when it is first asked for.
        """
        return _nothing_to_meet()

    def empty(self, size: int) -> np.ndarray | None:
        """New memory for batches where the framework has a better kind: ``(size,)`` uint8, aligned to 64 bytes."""
        return None

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """The arrays of one batch as the framework's tensors; a tuple stays a tuple.

        Parameters
        ----------
        arrays
            Rows along the first axis of each, the same number in all; C-contiguous. The adapter may share their
            memory: it is this batch's own while anything refers to it, or a view as :attr:`views` allows.
        """
        return arrays


@contextmanager
def _nothing_to_meet() -> Iterator[Mapping[str, Any]]:
    yield {}


def serve_until_stopped(session: Session) -> None:
    """What a parameter server does: its server answers the others in threads of its own until the run ends."""
    session.wait_until_stopped()
