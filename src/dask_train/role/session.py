"""What a user's function sees inside a role process. Knows nothing of Dask: it talks to its agent through a link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dask_train.arguments import nearest
from dask_train.data.plan import Shuffle
from dask_train.frameworks.base import RoleInfo
from dask_train.input_errors import raises_at_the_call
from dask_train.role.checkpointing import Checkpointing
from dask_train.role.collective import Collective
from dask_train.role.context import Context, Link
from dask_train.role.dataset import DataSet
from dask_train.role.equipment import Equipment
from dask_train.role.time_spent import DATA


class Session(Collective, Checkpointing):
    """One role of a run, seen from inside.

    Attributes
    ----------
    role, rank, size
        Name of the role, its number, and the number of roles of that name.
    world_rank, world_size
        The rank over all training roles of the run, chiefs first, and how many of them there are: those of
        :meth:`all_reduce` and its like. The rank is None in roles that don't train.
    is_chief
        Whether this role initialises and saves for all: the chief, or worker 0 if the run has none. Without either, the
        first of the training roles.
    attempt
        Number of this start of the role: 0, and one more with each recovery.
    num_rows, schema
        Rows of the data that the run gave this role, over all ranks, and its columns; 0 and None without any.
    scratch
        A folder of this role's own that goes away with the run.
    peers
        ``host:port`` by role and rank, as the framework's own network has them; empty without a framework.
    """

    def __init__(self, link: Link, me: RoleInfo, equipment: Equipment) -> None:
        self._link, self._extras = link, dict(equipment.extras)
        self.role, self.rank, self.size = me.role, me.rank, me.counts[me.role]
        self._context = Context(
            link=link,
            framework=equipment.framework,
            account=equipment.account,
            rank=self.rank,
            size=self.size,
            num_threads=me.num_threads,
            has_own_data=equipment.data is not None,
        )
        members = dict(zip(me.members, range(len(me.members)), strict=True))
        self.world_rank, self.world_size = members.get((me.role, me.rank)), len(members)
        self.is_chief = is_chief(me)
        self.attempt, self._alone, self._has_begun = equipment.attempt, equipment.alone, False
        self._joins = equipment.joins
        self._counts = me.counts
        self.peers = equipment.peers
        self.scratch = equipment.scratch
        self._meeting = equipment.meeting
        self._state_memory = equipment.state_memory
        self._made: set[str] = set()  # of the extras
        self._checkpoint = equipment.checkpoint
        self._went_on_with, self._score, self._reported = (), None, set()
        self._data = None if equipment.data is None else DataSet(self._context, 0, *equipment.data)
        self.num_rows = 0 if self._data is None else self._data.num_rows
        self.schema = None if self._data is None else self._data.schema

    def __repr__(self) -> str:
        """Show the role, its rank and its number of ranks."""
        again = f", attempt {self.attempt}" if self.attempt else ""
        return f"<Session of {self.role} {self.rank}, one of {self.size}{again}>"

    def _go_on_among(self, size: int) -> None:
        """Share the rows that follow among that many workers; a pass over the data is continued, not begun anew."""
        if size == self.size:
            return
        self.size = self.world_size = self._context.size = size
        if self._data is not None:
            self._data.continue_pass()

    def _count_no_rows(self) -> None:
        """Let what is read from now on not count as trained: the role whose place this takes has come back from it."""
        self._context.account.seal()

    @property
    def global_rows(self) -> int:
        """Rows of the current global batch over all ranks, for weights; 0 before the first."""
        return self._context.global_rows

    @property
    def position(self) -> tuple[int, int]:
        """The epoch and the batch after the one that was taken last: where ``batches(start=...)`` resumes.

        Batches of other data sets, such as those of a validation, change nothing, where the role has data of its own.
        """
        return self._context.position

    @raises_at_the_call
    def batches(
        self,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        shuffle: Shuffle = True,
        seed: int = 0,
        start: tuple[int, int] = (0, 0),
    ) -> Iterator[Any]:
        """Give this rank's share of each global batch of the data that ``train(data=...)`` gave this role.

        Parameters
        ----------
        epochs
            Number of times that all rows are read, each in an order of its own. Every call begins with epoch 0, so
            calls with the same ``seed`` give the same order. Default: 1.
        batch_size
            Rows of a global batch, over all ranks of this role. The ranks' shares differ by at most one row; a share
            is empty only where the global batch has fewer rows than there are ranks. Default: 32.
        shuffle
            True draws every batch from all partitions, in a new order in every epoch; ``"partition"`` takes the
            partitions one after the other in a new order, the rows of each shuffled; False keeps the order of the
            collection. Global batch k holds the same rows whatever the number of ranks.
        seed
            Seed of the orders of rows. Default: 0.
        start
            The epoch and batch to begin with: a :attr:`position` that was kept with a checkpoint; or ``(epoch, 0)``, in
            a loop that calls this once per epoch. Default: (0, 0).

        Returns
        -------
        iterator
            Of batches as the data was given: a tensor, a tuple or a dict of them, rows along the first axis; NumPy
            arrays without a framework. Rows that lie one after the other in shared memory are given as they are there,
            without a copy, where the framework can't write to them (NumPy arrays are read-only then); others are
            gathered, once, while the loop is busy with the batch before, into memory that is used again when nothing
            refers to the batch. Sparse rows are dense in a batch.

        Raises
        ------
        ValueError
            The role was given no data, or a count is below 1.

        Examples
        --------
        >>> for epoch in range(10):  # the orders of session.batches(epochs=10)
        ...     for x, y in session.batches(epochs=epoch + 1, start=(epoch, 0)):
        ...         step(x, y)
        ...     session.report(epoch=epoch, loss=loss)
        """
        data = self._own_data()
        return data.batches(epochs=epochs, batch_size=batch_size, shuffle=shuffle, seed=seed, start=start)

    @raises_at_the_call
    def partitions(self) -> Iterator[Any]:
        """Give this rank's own partitions of the data that ``train(data=...)`` gave this role.

        Every partition is one rank's, as a whole, so every row of the data set is on exactly one rank: one of the host
        where it lies, of several the one with fewer rows so far, the larger partitions first. It is the same one in
        each call. Where there are fewer partitions than ranks some have none; then, and where they are of very
        different sizes, rechunk or repartition the collection.

        Returns
        -------
        iterator
            Of partitions as the data was given: an array ``(rows, *row_shape)``, a tuple or a dict of them. NumPy
            arrays with any framework, read-only views of the memory that all roles of the host share, without a copy;
            columns of text are copied, and sparse rows are a ``scipy.sparse.csr_array``. Partitions without rows are
            left out. Each may be kept: ``list(...)`` takes no memory. Those of data that is streamed are computed anew
            in each call, a group at a time, and are copies: continue with the next without keeping them.

        Raises
        ------
        ValueError
            The role was given no data.
        """
        return self._own_data().partitions()

    @property
    def partition_numbers(self) -> np.ndarray:
        """The numbers in the collection, int64 ascending, of what :meth:`partitions` gives."""
        return self._own_data().partition_numbers

    def _own_data(self) -> DataSet:
        if self._data is None:
            raise ValueError(
                f"Role {self.role!r} was given no data. Pass it: train(..., data={{{self.role!r}: (X, y)}}), "
                "or open a published data set with session.dataset(name)."
            )
        return self._data

    def dataset(self, name: str) -> DataSet:
        """Open a data set of :func:`dask_train.publish_dataset`, or a collection that Dask's own verb published.

        Parameters
        ----------
        name
            Of a data set of the run (``train(datasets=...)``), or of a published one.

        Returns
        -------
        DataSet
            Its rows are opened as they are needed.

        Raises
        ------
        DataError
            There is no data set of that name, or it can't be read as rows. A later call looks for it anew.
        """
        self._link.moved(f"opening data set {name!r}")
        with self._link.spent.on(DATA):
            number, table, rows = self._link.dataset(name)
        return DataSet(self._context, number, table, rows)

    @raises_at_the_call
    def torch_dataset(self, name: str | None = None) -> Any:
        """Return all rows of the data as a map-style ``torch.utils.data.Dataset``, the same one on every rank.

        For loops that share rows out among ranks by themselves: ``DistributedSampler``, accelerate, transformers,
        Lightning. Each of them repeats some rows in the last batches of an epoch where the rows don't divide evenly
        (``DistributedSampler`` up to one per rank). :meth:`batches` gives each rank its own share instead, which none
        of them may share out once more. Rows that are taken here count nowhere in the run's ledger.

        Parameters
        ----------
        name
            As :meth:`dataset` takes it; None for the role's own data.

        Returns
        -------
        torch.utils.data.Dataset
            As :meth:`dask_train.PublishedDataset.to_torch`: ``dataset[i]`` is a row, as the data was given. Whole
            batches are gathered at once, copied once; rows on other hosts are fetched, in the role's own process only
            (``num_workers=0``).

        Raises
        ------
        ValueError
            The run's framework is not torch, the role has no data, or it is streamed.
        DataError
            As :meth:`dataset`; torch has no such dtype.
        """
        data = self._own_data() if name is None else self.dataset(name)
        return self._context.framework.dataset_of(data.rows_by_number())

    @property
    def cluster_spec(self) -> Any:
        """``host:port`` of TensorFlow's servers by job; with ``framework="tensorflow"``."""
        return self._extra("cluster_spec")

    @property
    def server(self) -> Any:
        """The ``tf.distribute.Server`` of this role; with ``framework="tensorflow"``."""
        return self._extra("server")

    def __getattr__(self, name: str) -> Any:
        """Return what the adapter of the run's framework gives under other names."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._extra(name)

    def _extra(self, name: str) -> Any:
        if name not in self._extras:
            names = ", ".join(self._extras) or "nothing"
            own = [each for each in dir(self) if not each.startswith("_") and each != name]
            raise AttributeError(
                f"A session has no {name!r}: the run's framework, {self._context.framework.name!r}, gives {names}."
                f"{nearest(name, [*own, *self._extras])}"
                + (" It is there with framework='tensorflow'." if name in ("server", "cluster_spec") else "")
            )
        value = self._extras[name]
        if callable(value) and name not in self._made:
            value = self._extras[name] = value()
            self._made.add(name)
        return value


def is_chief(me: RoleInfo) -> bool:
    """Return whether a role initialises and saves for all: the first of those that train."""
    return me.members[:1] == [(me.role, me.rank)]
