"""What a user's function sees inside a role process. Knows nothing of Dask: it talks to its agent through a link."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.data.account import Account
from dask_train.data.plan import Shuffle
from dask_train.data.rows import Rows
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.frameworks.base import TRAINING_ROLES, Framework, Me
from dask_train.rank_dataset import DataSet
from dask_train.roles import AddressBook

RESERVED_NAMES = ("role", "rank", "attempt", "time")
MAX_TEXT = 1000  # a report goes through the scheduler; what is longer is no score


class Link(Protocol):
    """The way from a session to its agent; no call of it waits for anybody, but those for data."""

    @property
    def stop_reason(self) -> str:
        """Why the role is to stop; empty while it is not."""

    def wait_until_stopped(self) -> None:
        """Sleep until there is a reason."""

    def report(self, scores: dict[str, Any]) -> None:
        """Send scores."""

    def ask_to_stop(self, reason: str) -> None:
        """Ask the run to stop."""

    def send(self, value: bytes) -> None:
        """Send a pickled value to whoever holds the run."""

    def receive(self, timeout_s: float | None) -> bytes:
        """The next pickled value that was sent to this role."""

    def moved(self, doing: str, *, batches: int = 0) -> None:
        """Note progress, and what the role is doing now."""

    def dataset(self, name: str) -> tuple[int, Table, Rows]:
        """A published data set, and its number in this run, from 1."""

    def rows_from_elsewhere(self, stream: Stream, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Rows of a data set that are not mapped here: ``(k, *row_shape)`` of each column."""

    def open_group(self, stream: Stream, group: int, needed_from: int) -> Rows:
        """Map one group of partitions of an epoch; groups before ``needed_from`` are needed no more."""

    def leave(self, stream: Stream) -> None:
        """No more groups of this epoch are needed."""


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """What a role process has been given.

    Attributes
    ----------
    attempt
        Which start of the role it is.
    framework, peers, extras
        The adapter, its peers' addresses, and what it shows in the session.
    data
        The role's own data, mapped; None where it has none.
    account
        Where the batches that it takes are noted.
    checkpoint
        Where checkpoints are kept, if anywhere.
    scratch
        A folder that goes away with the run.
    """

    attempt: int
    framework: Framework
    peers: AddressBook
    extras: Mapping[str, Any]
    data: tuple[Table, Rows] | None
    account: Account
    checkpoint: str | None
    scratch: Path


class Session:
    """One role of a run, seen from inside.

    Attributes
    ----------
    role, rank, size
        Which role this is, its number, and how many of that role there are.
    is_chief
        Whether this role initialises and saves for all: the chief, or worker 0 where the run has none.
    attempt
        Which start of this role it is: 0, and one more with each recovery.
    global_rows
        Rows of the current global batch over all ranks, for weights; 0 before the first.
    position
        The epoch and the batch after the one that was taken last: what ``batches(start=...)`` takes to go on after it.
    num_rows, schema
        Rows of the data that the run gave this role, over all ranks, and its columns; 0 and None without any.
    scratch
        A folder of this role's own that goes away with the run.
    peers
        ``host:port`` by role and rank, as the framework's own network has them; empty without a framework.
    """

    def __init__(self, link: Link, me: Me, equipment: Equipment) -> None:
        self._link, self._framework, self._extras = link, equipment.framework, dict(equipment.extras)
        self.role, self.rank, self.size = me.role, me.rank, me.counts[me.role]
        first = "chief" if "chief" in me.counts else TRAINING_ROLES[-1]
        self.is_chief = me.rank == 0 and me.role == (first if first in me.counts else next(iter(me.counts)))
        self.attempt = equipment.attempt
        self.peers = equipment.peers
        self.scratch = equipment.scratch
        self.global_rows = 0
        self.position = (0, 0)
        self._num_batches = 0
        self._made: set[str] = set()  # of the extras
        self._account = equipment.account
        self._checkpoint = None if equipment.checkpoint is None else CheckpointFolder(equipment.checkpoint)
        self._data = None if equipment.data is None else DataSet(self, 0, *equipment.data)
        self.num_rows = 0 if self._data is None else self._data.num_rows
        self.schema = None if self._data is None else self._data.schema

    def batches(
        self,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        shuffle: Shuffle = True,
        seed: int = 0,
        start: tuple[int, int] = (0, 0),
    ) -> Iterator[Any]:
        """This rank's share of each global batch of the data that ``train(data=...)`` gave this role.

        Parameters
        ----------
        epochs
            How often all rows are gone through.
        batch_size
            Rows of a global batch, over all ranks of this role. The ranks' shares differ by at most one row; a share
            is empty only where the global batch has fewer rows than there are ranks.
        shuffle
            True draws every batch from all partitions, in a new order in every epoch; ``"partition"`` takes the
            partitions one after the other in a new order, the rows of each shuffled; False keeps the order of the
            collection. Global batch k holds the same rows whatever the number of ranks.
        seed
            Fixes the orders.
        start
            The epoch and batch to begin with: a :attr:`position` that was kept with a checkpoint.

        Yields
        ------
        As the data was given: a tensor, a tuple or a dict of them, rows along the first axis; NumPy arrays without a
        framework. Rows that lie one after the other in shared memory are given as they are there, without a copy,
        where the framework can't write to them (NumPy arrays are read-only then); others are gathered, once, while
        the loop is busy with the batch before, into memory that is used again when nothing refers to the batch.

        Raises
        ------
        ValueError
            The role was given no data, or a count is below 1.
        """
        if self._data is None:
            raise ValueError(
                f"Role {self.role!r} was given no data. Pass it: train(..., data={{{self.role!r}: (X, y)}}), "
                "or open a published data set with session.dataset(name)."
            )
        return self._data.batches(epochs=epochs, batch_size=batch_size, shuffle=shuffle, seed=seed, start=start)

    def dataset(self, name: str) -> DataSet:
        """A data set that was published with :func:`dask_train.publish_dataset`, or a collection by Dask's own verb.

        Raises
        ------
        DataError
            There is none of that name, or it can't be read as rows.
        """
        self._link.moved(f"opening data set {name!r}")
        return DataSet(self, *self._link.dataset(name))

    def save_checkpoint(self, write: Callable[[Path], Any]) -> str:
        """Keep a checkpoint where ``train(checkpoint=...)`` says; to be called by one role only, such as the chief.

        Parameters
        ----------
        write
            Called with an empty local folder, into which it writes files: weights, optimizer state, and
            :attr:`position`, which ``batches(start=...)`` takes to go on. They are copied once, to where they are kept.

        Returns
        -------
        str
            Where it lies. The last two are kept; one that a killed role has left half-written is never loaded.

        Raises
        ------
        CheckpointError
            It can't be written there.
        ValueError
            The run was given no place for checkpoints.
        """
        self._link.moved("saving a checkpoint")
        where = self.checkpoints().save(write, self.scratch)
        self._account.all_done()  # the batch in hand is in it
        return where

    def load_checkpoint(self) -> Path | None:
        """The files of the last complete checkpoint, in a local folder of this role; None where there is none yet.

        Also one that an earlier run has left in the same place.

        Raises
        ------
        CheckpointError
            It can't be read.
        ValueError
            The run was given no place for checkpoints.
        """
        self._link.moved("loading a checkpoint")
        return self.checkpoints().load(self.scratch)

    def checkpoints(self) -> CheckpointFolder:
        """The folder that :meth:`save_checkpoint` writes to.

        Raises
        ------
        ValueError
            The run was given no place for checkpoints.
        """
        if self._checkpoint is None:
            raise ValueError(
                "This run has no place for checkpoints. Pass it: train(..., checkpoint='a folder or URL')."
            )
        return self._checkpoint

    def report(self, **scores: Any) -> None:
        """Tell scores: the client follows them, and stop rules look at them. Returns at once; never a barrier.

        Parameters
        ----------
        **scores
            Numbers, strings, booleans or None; zero-dimensional arrays and tensors are taken as their number.

        Raises
        ------
        ValueError
            A name is reserved (role, rank, attempt, time).
        TypeError
            A value is none of those.
        """
        taken = [name for name in scores if name in RESERVED_NAMES]
        if taken:
            raise ValueError(f"report() adds {', '.join(RESERVED_NAMES)} itself; name your {taken[0]!r} differently.")
        plain: dict[str, Any] = {name: _plain(name, value) for name, value in scores.items()}
        plain.update(role=self.role, rank=self.rank, attempt=self.attempt, time=time.time())
        self._link.report(plain)

    def send(self, value: Any) -> None:
        """Send a value to the client, where :meth:`Run.receive` gives it; returns at once.

        It goes through the scheduler: scores and small results may, large ones better lie in a file.

        Parameters
        ----------
        value
            Anything that can be pickled; copied before this returns.

        Raises
        ------
        TypeError
            It can't be pickled.
        """
        try:
            pickled = bytes(cloudpickle.dumps(value))
        except Exception as error:
            raise TypeError(f"send() was given a {type(value).__name__}, which can't be pickled: {error}.") from error
        self._link.send(pickled)

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next value that :meth:`Run.send` has sent to this role, in order, each once.

        Parameters
        ----------
        timeout_s
            How long to wait, in seconds; 0 gives what is there, None waits for as long as the run lasts.

        Raises
        ------
        StalledError
            None has come in time.
        ClosedError
            None will come: the run stops.
        """
        return pickle.loads(self._link.receive(timeout_s))  # noqa: S301 - from the run's client, as its function is

    def should_stop(self) -> bool:
        """Whether the run is to end: a rule is met, somebody asked, or the training roles have returned.

        Costs no message. The process is killed ``train.stop.timeout`` (5 s) after the decision.
        """
        self._link.moved(f"working on batch {self._num_batches}" if self._num_batches else "asking whether to stop")
        return bool(self._link.stop_reason)

    def wait_until_stopped(self) -> None:
        """Sleep until :meth:`should_stop` is true; what a role does whose servers answer others."""
        self._link.moved("serving until it is stopped")
        self._link.wait_until_stopped()

    def stop(self, reason: str = "") -> None:
        """Ask all roles of the run to end in order; the run's result carries the reason."""
        self._link.ask_to_stop(reason or f"{self.role} {self.rank} asked the run to stop")

    @property
    def cluster_spec(self) -> Any:
        """``host:port`` of TensorFlow's servers by job; with ``framework="tensorflow"``."""
        return self._extra("cluster_spec")

    @property
    def server(self) -> Any:
        """The ``tf.distribute.Server`` of this role; with ``framework="tensorflow"``."""
        return self._extra("server")

    def __getattr__(self, name: str) -> Any:
        """What the adapter of the run's framework gives under other names."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._extra(name)

    def _extra(self, name: str) -> Any:
        if name not in self._extras:
            given = ", ".join(self._extras) or "nothing"
            raise AttributeError(
                f"A session has no {name!r}: the run's framework, {self._framework.name!r}, gives {given}."
                + (" It is there with framework='tensorflow'." if name in ("server", "cluster_spec") else "")
            )
        value = self._extras[name]
        if callable(value) and name not in self._made:
            value = self._extras[name] = value()
            self._made.add(name)
        return value

    def _count_batch(self) -> int:
        self._num_batches += 1
        return self._num_batches


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if value is None or isinstance(value, bool | int | float):
        return value
    found = value
    if not hasattr(value, "item") and hasattr(value, "numpy") and getattr(value, "shape", None) == ():
        found = value.numpy()  # a TensorFlow tensor
    if callable(getattr(found, "item", None)) and getattr(found, "shape", ()) == ():
        found = found.item()
        if found is None or isinstance(found, str | bool | int | float):
            return found
    raise TypeError(
        f"report({name}=...) was given a {type(value).__name__}; scores are numbers, strings, booleans or None. "
        "Reduce an array first, with float(x.mean()) for instance."
    )
