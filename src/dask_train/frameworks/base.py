"""The interface between a run and a framework: facts that an adapter states, and its work in a role process.

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

# Time limit of the rendezvous of a role without peers, in seconds.
ALONE_S = 30.0
# Roles that train, and that a run waits for; the chief comes first where ranks are numbered over both.
TRAINING_ROLES = ("chief", "worker")


@dataclass(frozen=True, kw_only=True)
class RoleInfo:
    """Identity of a role process.

    Attributes
    ----------
    role, rank
        Name of the role, and the process's rank in it.
    counts
        Number of processes of each role in the run.
    host
        Host name or address under which peers reach this host.
    num_threads
        Number of threads, the process's share of the host's cores.
    training
        Roles that train, in the order in which ranks are numbered over all of them.
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
        """Name and rank of every training role, in the order of their ranks over all."""
        return [(role, rank) for role in self.training for rank in range(self.counts.get(role, 0))]


class Framework:
    """Adapter of a framework to a run. This class is the adapter for no framework: batches are NumPy arrays.

    Attributes
    ----------
    name
        Value that users pass as ``framework=``.
    imports
        Modules that :meth:`prepare` imports in every role process. They must neither open a device nor start threads: a
        Dask worker keeps a process that has imported them, and forks it for role processes (``train.template.idle``).
        Empty for a framework whose processes can't be forked.
    import_environment
        Environment variables that :meth:`prepare` sets before it imports them.
    views
        Whether batches may be views of the rows in shared memory: ``"read-only"``; ``"writable"`` if the framework
        asks for writable memory but never writes to it; None if users may write to its tensors.
    role_bytes
        Memory of a role process after it has imported its framework, in bytes. It is subtracted from the memory for
        data.
    shared_bytes
        Part of ``role_bytes`` that is counted once per Dask worker if role processes are forked from a template.
    keeps_state
        Whether roles keep their state in memory of their Dask workers, from which all continue when they start again,
        as with ``recovery="in_place"``.
    """

    name = "numpy"
    imports: tuple[str, ...] = ("numpy", "dask_train.role.main")
    import_environment: Mapping[str, str] = {}
    views: str | None = "read-only"
    role_bytes = 100 << 20
    shared_bytes = 0
    keeps_state = False

    def check(self, counts: Mapping[str, int]) -> None:
        """Refuse roles that the framework does not support; in the client, before anything starts. Imports nothing.

        Parameters
        ----------
        counts
            Number of processes of each role.

        Raises
        ------
        ValueError
            A role or its number is not supported; the message tells why, and what to change.
        """

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether training roles wait for each other in every step, so that the loss of one ends all.

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
        """Return whether one process of a role can be restarted while the others continue.

        Parameters
        ----------
        role
            Name of the role.

        Returns
        -------
        bool
            False if all have to restart.
        """
        return True

    @property
    def replaces_in_place(self) -> bool:
        """Return whether a lost training role is replaced in place, as with ``recovery="in_place"``."""
        return False

    @property
    def rows_are_known(self) -> bool:
        """Return whether the training function itself tells which rows were trained on, as its checkpoints do.

        Else only the agent of a lost role knows. Where its Dask worker is lost, too, the role is not replaced in place.
        """
        return True

    def stays_until_the_end(self, counts: Mapping[str, int]) -> bool:
        """Return whether role processes stay after their functions have returned, as others need their servers.

        Parameters
        ----------
        counts
            Number of processes of each role.

        Returns
        -------
        bool
            False if a process ends with its function.
        """
        return False

    def default_role(self, role: str) -> Callable[[Any], Any] | None:
        """Return the default function of a role, for which the user passed none; None if there is no default.

        Parameters
        ----------
        role
            Name of the role.

        Returns
        -------
        function of a session, or None
            It is pickled and sent to the role process.
        """
        return serve_until_stopped if role == "ps" else None

    def load(self, me: RoleInfo) -> None:
        """Import the framework, and set its number of threads. Called by :meth:`prepare`, once per role process.

        Parameters
        ----------
        me
            Identity of this role process.

        Raises
        ------
        LaunchError
            The framework can't be imported.
        """

    def prepare(self, me: RoleInfo) -> str:
        """Load the framework, and bind its port. Called once per role process.

        Parameters
        ----------
        me
            Identity of this role process.

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
        """Return a context manager that connects to the peers in the role process.

        It holds environment variables, server and process group of this role until exit.

        Parameters
        ----------
        me
            Identity of this role process.
        peers
            Results of :meth:`prepare` of all roles, by role and rank.
        timeout_s
            Seconds to wait for the peers.

        Returns
        -------
        context manager of a mapping
            Attributes of the session, such as ``cluster_spec`` and ``server``. A value that is a function is called
            at the first access.
        """
        return _nothing_to_meet()

    @contextmanager
    def alone(self, me: RoleInfo) -> Iterator[Mapping[str, Any]]:
        """Prepare the only role of a run in the client's own process, and restore the environment on exit.

        The number of threads stays the user's.

        Parameters
        ----------
        me
            Identity of the role.

        Yields
        ------
        mapping
            As in :meth:`rendezvous`.

        Raises
        ------
        ValueError
            The framework can't be prepared in a process that lives on, as nothing could undo it.
        """
        with environment_restored():
            address = self.prepare(me)
            peers = AddressBook({me.role: [address]} if address else {})
            with self.rendezvous(me, peers, ALONE_S) as extras:
                yield extras

    def lack_of_device(self) -> str:
        """Return why the framework uses no GPU in this process; called in a role that has one (``gpus=1``).

        Returns
        -------
        str
            A clause such as ``"this build of torch is for CPUs"``; empty if it uses one, or if that is unknown.
        """
        return ""

    def hint(self, error: BaseException) -> str:
        """Return advice about an error of the user's function that is due to how roles are started.

        Parameters
        ----------
        error
            Error that the function has raised.

        Returns
        -------
        str
            Sentences to follow the error's message; empty if there is no advice.
        """
        return ""

    def pulse(self) -> int:
        """Return a number that changes while the user's function makes progress, also without batches and reports.

        Called a few times per second, in a thread of its own.

        Returns
        -------
        int
            Always 0 if the framework can't tell.
        """
        return 0

    def remarks(self, me: RoleInfo) -> Sequence[str]:
        """Return notices about likely mistakes, after the user's function has returned.

        Parameters
        ----------
        me
            Identity of this role process.

        Returns
        -------
        sequence of str
            Sentences.
        """
        return ()

    def empty(self, size: int) -> np.ndarray | None:
        """Return new memory of the framework for batches: ``(size,)`` uint8, aligned to 64 bytes.

        Parameters
        ----------
        size
            Size in bytes.

        Returns
        -------
        ndarray, or None
            None to use memory of NumPy.
        """
        return None

    def dataset_of(self, rows: NumberedRows) -> Any:
        """Return all rows as a map-style data set of the framework.

        Parameters
        ----------
        rows
            Rows of all partitions, the same on every rank.

        Returns
        -------
        data set
            Data set for the framework's samplers, which split it between ranks.

        Raises
        ------
        ValueError
            The framework has no such data sets.
        """
        raise ValueError(
            f"A run of framework={self.name!r} has no torch data sets. Pass train(..., framework='torch')."
        )

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """Return the arrays of one batch as the framework's tensors; a tuple stays a tuple.

        Parameters
        ----------
        arrays
            Arrays with rows along the first axis, equally many in all; C-contiguous. The adapter may share their
            memory: no other batch uses it while anything refers to it, or it is a view as :attr:`views` allows.

        Returns
        -------
        tensors
            The batch that the role's loop receives.
        """
        return arrays


class NumberedRows(Protocol):
    """Rows with random access by number, from 0."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def take(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return rows by their numbers, as one new array ``(len(numbers), ...)`` per column."""

    def shaped(self, values: Sequence[Any]) -> Any:
        """Return one value per column, in the structure of the user's data."""


@contextmanager
def _nothing_to_meet() -> Iterator[Mapping[str, Any]]:
    yield {}


class Serving(Protocol):
    """The part of a session that a parameter server uses."""

    def wait_until_stopped(self) -> None:
        """Return when the run ends."""


def serve_until_stopped(session: Serving) -> None:
    """Serve until the run ends: a parameter server answers the others in threads of its own."""
    session.wait_until_stopped()
