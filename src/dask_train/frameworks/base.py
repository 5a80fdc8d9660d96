"""The seam between a run and a framework: what an adapter says, and what it does in a role process.

One adapter per framework, in a folder of its own, found by :mod:`dask_train.frameworks.registry`. An adapter is small
and picklable until :meth:`Framework.prepare`; it imports its framework there and no earlier. It never imports the
cluster, nor another adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dask_train.frameworks.environment import environment_restored
from dask_train.roles import AddressBook

# How long a role that meets no others may take for that, in seconds.
ALONE_S = 30.0
# Roles that train, and that a run waits for; the chief comes first where ranks are numbered over both.
TRAINING_ROLES = ("chief", "worker")


@dataclass(frozen=True, kw_only=True)
class RoleInfo:
    """Which role process this is.

    Attributes
    ----------
    role, rank
        Its role, and its rank there.
    counts
        Number of processes of each role in the run.
    host
        The name or address under which its peers reach this host.
    num_threads
        Its share of the host's cores.
    training
        The roles that train, in the order in which their ranks are numbered over all of them.
    tls
        The cluster's certificates, for connections of an adapter's own: ``ca_file``, ``cert``, ``key`` (paths, or PEM
        text) and perhaps ``ciphers``. None if the cluster has no TLS.
    """

    role: str
    rank: int
    counts: Mapping[str, int]
    host: str
    num_threads: int
    training: tuple[str, ...] = TRAINING_ROLES
    tls: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def members(self) -> list[tuple[str, int]]:
        """Every training role of the run by name and rank, in the order of their ranks over all."""
        return [(role, rank) for role in self.training for rank in range(self.counts.get(role, 0))]


class Framework:
    """A framework as a run needs it; this class is the adapter for none, where batches are NumPy arrays.

    Attributes
    ----------
    name
        What users pass as ``framework=``.
    imports
        Modules that :meth:`prepare` imports in every role process, and nothing that opens a device or starts threads: a
        Dask worker keeps a process that has imported them, and forks role processes of it
        (``train.template.idle``). Empty for processes that start anew each time.
    import_environment
        Variables that :meth:`prepare` sets before it imports them.
    views
        Whether batches may be views of the rows in shared memory: ``"read-only"``; ``"writable"`` where the framework
        asks for writable memory and never writes to it; None if users may write to its tensors.
    role_bytes
        What a role process takes for itself once its framework is imported, in bytes; reckoned with where data is
        large.
    shared_bytes
        Part of these that is counted once per Dask worker, for the template, where role processes are forked of one.
    """

    name = "numpy"
    imports: tuple[str, ...] = ("numpy", "dask_train.role.main")
    import_environment: Mapping[str, str] = {}
    views: str | None = "read-only"
    role_bytes = 100 << 20
    shared_bytes = 0

    def check(self, counts: Mapping[str, int]) -> None:
        """Refuse roles that the framework can't serve, in the client, before anything starts; imports nothing.

        Parameters
        ----------
        counts
            Number of processes of each role.

        Raises
        ------
        ValueError
            What is not supported, why, and what to change.
        """

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether the training roles of such a run wait for each other, so that the loss of one ends all.

        Parameters
        ----------
        counts
            Number of processes of each role.

        Returns
        -------
        bool
            False if no role waits for others.
        """
        return False

    def can_replace(self, role: str) -> bool:
        """Return whether one role process can be started again while the others continue.

        Parameters
        ----------
        role
            Its name.

        Returns
        -------
        bool
            False if all have to start again.
        """
        return True

    @property
    def replaces_in_place(self) -> bool:
        """Return whether a lost training role is replaced in place, as with ``recovery="in_place"``."""
        return False

    def stays_until_the_end(self, counts: Mapping[str, int]) -> bool:
        """Return whether a role process stays after its function has returned, for others that need its server.

        Parameters
        ----------
        counts
            Number of processes of each role.

        Returns
        -------
        bool
            False if its process ends with its function.
        """
        return False

    def default_role(self, role: str) -> Callable[[Any], Any] | None:
        """Return what a role does for which the user gave no function; None if there is no such default.

        Parameters
        ----------
        role
            Its name.

        Returns
        -------
        function of a session, or None
            It travels to the role process.
        """
        return serve_until_stopped if role == "ps" else None

    def load(self, me: RoleInfo) -> None:
        """In the role process, once: import the framework, with this role's threads; :meth:`prepare` begins with it.

        Parameters
        ----------
        me
            Which role this is.

        Raises
        ------
        LaunchError
            The framework can't be imported.
        """

    def prepare(self, me: RoleInfo) -> str:
        """In the role process, once: load the framework, bind its port.

        Parameters
        ----------
        me
            Which role this is.

        Returns
        -------
        str
            ``host:port`` at which peers will reach this role; empty if none will.
        """
        self.load(me)
        return ""

    def rendezvous(
        self, me: RoleInfo, peers: AddressBook, timeout_s: float
    ) -> AbstractContextManager[Mapping[str, Any]]:
        """In the role process: meet the others; the environment, servers and groups of this role while it lasts.

        Parameters
        ----------
        me
            As :meth:`prepare` had it.
        peers
            What every role's :meth:`prepare` returned, by role and rank.
        timeout_s
            Seconds that the others may take.

        Returns
        -------
        context manager of a mapping
            What the session shows under these names, such as ``cluster_spec`` and ``server``; a value that is a
            function is called when it is first asked for.
        """
        return _nothing_to_meet()

    @contextmanager
    def alone(self, me: RoleInfo) -> Iterator[Mapping[str, Any]]:
        """In the client's own process: what a role has there that trains alone, while it lasts.

        Threads and environment are the user's, and afterwards as they were.

        Parameters
        ----------
        me
            The only role of its run.

        Yields
        ------
        mapping
            As of :meth:`rendezvous`.

        Raises
        ------
        ValueError
            It can't be undone in a process that lives on.
        """
        with environment_restored():
            address = self.prepare(me)
            peers = AddressBook({me.role: [address]} if address else {})
            with self.rendezvous(me, peers, ALONE_S) as extras:
                yield extras

    def lack_of_device(self) -> str:
        """Say why the framework uses no GPU in this process; asked where ``gpus=1`` has given the role one.

        Returns
        -------
        str
            A clause such as ``"this build of torch is for CPUs"``; empty if it uses one, or if that is unknown.
        """
        return ""

    def hint(self, error: BaseException) -> str:
        """Return what a user should do about an error of their function that comes of how roles are started.

        Parameters
        ----------
        error
            What has left the function.

        Returns
        -------
        str
            Sentences to follow the error's own words; empty if there is nothing to say.
        """
        return ""

    def pulse(self) -> int:
        """Return a number that changes while the user's function makes progress, without batches and reports, too.

        Called a few times a second in a thread of its own.

        Returns
        -------
        int
            Always 0 if the framework does not know.
        """
        return 0

    def remarks(self, me: RoleInfo) -> Sequence[str]:
        """Return what looks wrong though the user's function has returned; reported as the run's notices.

        Parameters
        ----------
        me
            As :meth:`prepare` had it.

        Returns
        -------
        sequence of str
            Sentences.
        """
        return ()

    def empty(self, size: int) -> np.ndarray | None:
        """Return new memory for batches where the framework has a better kind: ``(size,)`` uint8, aligned to 64 bytes.

        Parameters
        ----------
        size
            In bytes.

        Returns
        -------
        ndarray, or None
            None for memory of NumPy.
        """
        return None

    def dataset_of(self, rows: NumberedRows) -> Any:
        """Return all rows as a data set of the framework's own kind whose rows go by number.

        Parameters
        ----------
        rows
            Of all partitions, on this rank as on any other.

        Returns
        -------
        data set
            What the framework's tools share out among ranks.

        Raises
        ------
        ValueError
            It has no such kind.
        """
        raise ValueError(
            f"A run of framework={self.name!r} has no torch data sets. Pass train(..., framework='torch')."
        )

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """Return the arrays of one batch as the framework's tensors; a tuple stays a tuple.

        Parameters
        ----------
        arrays
            Rows along the first axis of each, the same number in all; C-contiguous. The adapter may share their
            memory: it is this batch's own while anything refers to it, or a view as :attr:`views` allows.

        Returns
        -------
        tensors
            What the role's loop is given.
        """
        return arrays


class NumberedRows(Protocol):
    """Rows that go by their numbers, from 0."""

    def __len__(self) -> int:
        """Return how many there are."""

    def take(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return rows by their numbers; of each column a new array, ``(len(numbers), ...)``."""

    def shaped(self, values: Sequence[Any]) -> Any:
        """Return one value per column, put together as the data was given."""


@contextmanager
def _nothing_to_meet() -> Iterator[Mapping[str, Any]]:
    yield {}


class Serving(Protocol):
    """A session, as one sees it that only serves."""

    def wait_until_stopped(self) -> None:
        """Return when the run ends."""


def serve_until_stopped(session: Serving) -> None:
    """Serve until the run ends: a parameter server answers the others in threads of its own."""
    session.wait_until_stopped()
