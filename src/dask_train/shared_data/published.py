"""Data sets in shared memory with a name in Dask's own registry: published, opened, taken back; and persisted ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from dask.utils import format_bytes

from dask_train.cards import Card, CardMixin, CardTable
from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.collections import Source, check_data
from dask_train.collections.partition.form import Picks
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.config import Deadlines
from dask_train.data.columns import Column
from dask_train.data.part import Part, shard_of
from dask_train.data.rows import Rows
from dask_train.data.selection import column_names, select
from dask_train.errors import DataError
from dask_train.extras import check_installed, install_command
from dask_train.input_errors import raises_at_the_call
from dask_train.shared_data.opened import open_rows
from dask_train.shared_data.run_data import DataSetOnDask
from dask_train.shared_data.segments import (
    SharedSegments,
    in_words,
    published_value,
    segments_in,
    unknown,
)

if TYPE_CHECKING:
    import tensorflow as tf
    import torch

Shard = tuple[int, int] | None


class PublishedDataset(CardMixin):
    """A named data set in the shared memory of Dask workers; :func:`~dask_train.get_dataset` gives it.

    Passes as ``data=`` of :func:`~dask_train.train`, which uses the very same memory. Dask keeps the data for as long
    as it is published, or such an object exists.

    Attributes
    ----------
    name
        Its name.
    columns
        dtype and row shape of each column, by name. Those of a published array, or of a tuple, go by ``x``, ``y``,
        and numbers from 2.
    num_rows, num_partitions, nbytes
        Rows of all partitions, how many partitions there are, and bytes of all rows; None for the bytes if a column has
        text or sparse rows, which take different numbers of bytes.
    where
        The Dask workers that held it when this object was made, and how many partitions each.
    segments
        The partitions, as the rest of the library has them.
    """

    def __init__(self, peer: Peer, name: str, segments: SharedSegments, where: Sequence[Sequence[str]]) -> None:
        self.name, self.segments = name, segments
        names = column_names(segments.schema)
        self.columns: Mapping[str, Column] = dict(zip(names, segments.schema.columns, strict=True))
        self.num_rows, self.num_partitions, self.nbytes = segments.num_rows, len(segments.lengths), segments.nbytes
        self.where = dict(sorted(Counter(holders[0] for holders in where if holders).items()))
        self._peer = peer
        self._rows: dict[frozenset[int], Rows] = {}

    def __repr__(self) -> str:
        size = "" if self.nbytes is None else f" {format_bytes(self.nbytes)},"
        return (
            f"<{type(self).__name__} {self.name!r}: {self.num_rows:,} rows of {in_words(self.columns)}; "
            f"{self.num_partitions} partitions,{size} on {len(self.where)} Dask workers>"
        )

    def _card(self) -> Card:
        columns = [
            (name, np.dtype(column.dtype).name, str(tuple(column.row_shape))) for name, column in self.columns.items()
        ]
        where = [(address, f"{count:,}") for address, count in self.where.items()]
        return Card(
            kind=type(self).__name__,
            name=self.name,
            facts=[
                ("rows", f"{self.num_rows:,}"),
                ("partitions", f"{self.num_partitions:,}"),
                *([] if self.nbytes is None else [("size", format_bytes(self.nbytes))]),
            ],
            tables=[
                CardTable(columns=("column", "dtype", "shape of a row"), rows=columns),
                CardTable(columns=("Dask worker", "partitions"), rows=where, title=f"on {len(where)} Dask workers"),
            ],
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"Data set {self.name!r} is mapped into this process and can't travel. Send its name, and open it there: "
            f"dt.get_dataset({self.name!r})."
        )

    @raises_at_the_call
    def to_numpy(
        self, *, features: str | Sequence[str] | None = None, label: str | None = None, shard: Shard = None
    ) -> Any:
        """Return the rows as NumPy arrays of this process: one copy of what is asked for.

        Parameters
        ----------
        features
            A name gives that column; a list gives one matrix of columns of numbers, ``(n, len(features))``, in their
            common dtype; None gives all columns but the label's, in the shape that was published: an array, a tuple
            or a dict.
        label
            Makes a pair of features and this column. Default: none.
        shard
            ``(i, n)`` for part i of n: the rows of all partitions numbered through and cut into parts that differ by
            at most one row. Only the partitions that it touches are opened. None for all rows.

        Returns
        -------
        Arrays ``(num_rows, *row_shape)``, put together as asked for.

        Raises
        ------
        ValueError
            There is no such column or shard, or the client is asynchronous.
        DataError
            Partitions are lost, or did not come in time; or the client is closed.
        """
        part = self._part("to_numpy", features, label, shard)
        return part.shaped(part.all())

    @raises_at_the_call
    def to_tf(
        self,
        *,
        features: str | Sequence[str] | None = None,
        label: str | None = None,
        shard: Shard = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> tf.data.Dataset:
        """Return the rows as a ``tf.data.Dataset`` that gathers them in native code from the shared memory.

        Parameters
        ----------
        features, label, shard
            As :meth:`to_numpy`.
        batch_size
            Rows of each element, less in the last one; None for single rows, which ``.repeat().batch(64)`` puts
            together at about the same speed.
        shuffle
            A new order in each pass over the data set.
        seed
            Seed of the orders. Default: 0.

        Returns
        -------
        tensorflow.data.Dataset
            Of known cardinality. Columns of numbers are mapped, not copied: each row is copied once, into its batch
            (single rows twice). Columns of text are copied as a whole, once, and those of sparse rows are
            made dense as a whole. For that, ``tf.data``'s default rewrites are off; with a shard, so is the
            auto-sharding of distribution strategies, which copies all rows as well.

        Raises
        ------
        ValueError
            As :meth:`to_numpy`, or ``batch_size`` is below 1.
        DataError
            As :meth:`to_numpy`, or TensorFlow has no such dtype.
        ImportError
            TensorFlow is not installed.
        """
        if batch_size is not None and (isinstance(batch_size, bool) or batch_size < 1):
            raise ValueError(f"batch_size is {batch_size!r}; it is a whole number of at least 1, or None for rows.")
        check_installed("to_tf", "tensorflow", install_command("tensorflow"))
        part = self._part("to_tf", features, label, shard)
        from dask_train.frameworks.tensorflow.rows_dataset import rows_dataset

        orders = seed if shuffle else None
        return rows_dataset(part, batch_size=batch_size, shuffle_seed=orders, is_shard=shard is not None)

    @raises_at_the_call
    def to_torch(
        self, *, features: str | Sequence[str] | None = None, label: str | None = None, shard: Shard = None
    ) -> torch.utils.data.Dataset[Any]:
        """Return the rows as a map-style torch ``Dataset`` over the shared memory.

        Parameters
        ----------
        features, label, shard
            As :meth:`to_numpy`.

        Returns
        -------
        torch.utils.data.Dataset
            ``dataset[i]`` is a row; ``dataset[a:b]``, a list or a tensor of numbers is a batch, gathered at once and
            copied once. A ``DataLoader(dataset, batch_size=64)`` gathers whole batches, too.

        Raises
        ------
        ValueError, DataError
            As :meth:`to_numpy`; torch has no such dtype.
        ImportError
            torch is not installed.
        """
        check_installed("to_torch", "torch", install_command("torch"))
        part = self._part("to_torch", features, label, shard)
        from dask_train.frameworks.torch.rows_dataset import RowsDataset

        return RowsDataset(part)

    def to_dask(self) -> Any:
        """Return the data set as Dask arrays, in the shape that was published; nothing is copied or computed.

        Returns
        -------
        dask.array.Array, or a tuple or dict of them
            ``(num_rows, *row_shape)``, one block per partition. Blocks are read-only views of the shared memory in the
            Dask workers; the arrays keep the data set.
        """
        return self.segments.arrays()

    def _part(self, verb: str, features: str | Sequence[str] | None, label: str | None, shard: Shard) -> Part:
        selection = select(self.segments.schema, features, label)
        stretches = shard_of(self.segments.lengths, shard)
        if self._peer.asynchronous:
            raise ValueError(
                f"{verb} waits for Dask workers, and the client of data set {self.name!r} is asynchronous. Open it "
                "with a client of its own in another thread or process: Client(address), then dt.get_dataset."
            )
        return Part(self._opened(frozenset(stretches.partition.tolist())), selection, stretches)

    def _opened(self, partitions: frozenset[int]) -> Rows:
        """Open partitions, and perhaps more that were opened before."""
        for opened, rows in self._rows.items():
            if partitions <= opened:
                return rows
        if self._peer.is_closed:
            change = f"Connect again, and open it there: dt.get_dataset({self.name!r})."
            raise DataError(f"Data set {self.name!r} can't be opened: its Dask client is closed.", change=change)
        what, data_timeout_s = f"Data set {self.name!r}", Deadlines.from_dask_config().progress_s
        rows = self._peer.run(open_rows, self._peer, what, self.segments, sorted(partitions), data_timeout_s)
        self._rows[partitions] = rows
        return rows


def as_source(
    what: str,
    data: Any,
    *,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    picks: Picks | None = None,
    decodes: bool = False,
    sparse: bool = False,
) -> Source | SharedSegments:
    """Return the segments that a user's value consists of, else what :func:`check_data` makes of it.

    With ``decodes`` the caller goes through batches, which decode rows; see
    :func:`~dask_train.shared_data.segments.segments_in`. With ``sparse`` matrices may be sparse.

    Raises
    ------
    TypeError, ValueError
        It is something else.
    """
    segments = segments_in(data, decodes=decodes)
    if segments is None:
        return check_data(what, data, features=features, label=label, picks=picks, sparse=sparse)
    if not sparse and any(column.is_sparse for column in segments.columns):
        raise TypeError(
            f"{what} has sparse rows in shared memory, and rows are dense arrays here. Publish them dense, "
            "X.map_blocks(lambda rows: rows.toarray(), dtype=X.dtype)."
        )
    if features is not None or label is not None:
        raise ValueError(
            f"{what} lies in shared memory with its columns as they are; features= and label= choose them when it is "
            "published: dt.publish_dataset(frame, name=..., features=..., label=...). Leave them out."
        )
    return segments


async def check_name(peer: Peer, name: str, override: bool) -> None:
    """Refuse a name that is taken.

    Raises
    ------
    DataError
        It is.
    """
    await ensure_plugin(peer)
    if not override and name in await peer.dask_end.list_datasets():
        raise _taken(name)


def _taken(name: str) -> DataError:
    return DataError(
        f"A data set {name!r} is published already.",
        change=f"Take another name, or replace it: override=True; or first dt.unpublish_dataset({name!r}).",
    )


async def computed(peer: Peer, what: str, data: DataSetOnDask | SharedSegments) -> SharedSegments:
    """Return the segments, once all are there.

    Raises
    ------
    DataError
        One can't be computed, or is lost.
    """
    await ensure_plugin(peer)
    if isinstance(data, SharedSegments):
        await data.check_there(peer, what)
        return data
    try:
        await data.described(lambda: None)
    except BaseException:
        await data.cancel()
        raise
    return data.segments()


async def publish(
    peer: Peer,
    name: str,
    data: DataSetOnDask | SharedSegments,
    override: bool,
    frames: tuple[FrameSchema | None, ...],
) -> None:
    """Give a data set its name, once all of it is computed, and keep what the categories of its frames are.

    Raises
    ------
    DataError
        A partition can't be computed, or the name was taken meanwhile.
    """
    segments = await computed(peer, f"data set {name!r}", data)
    segments = replace(segments, frames=frames or segments.frames)
    try:
        await peer.dask_end.publish_dataset(segments.record(), name=name, override=override)
    except KeyError:
        raise _taken(name) from None


async def get(peer: Peer, name: str) -> PublishedDataset:
    """Open what is published.

    Raises
    ------
    DataError
        There is no such data set, it is no set of segments, or a part of it is lost.
    """
    await ensure_plugin(peer)
    value = await published_value(peer, name)
    segments = segments_in(value)
    if segments is None:
        raise DataError(
            f"Data set {name!r} is a {type(value).__name__} that was published with Dask's own verb: it is not in "
            "shared memory.",
            change=f"client.get_dataset({name!r}) gives it; dt.publish_dataset(it, name=...) puts it there.",
        )
    return PublishedDataset(peer, name, segments, await segments.check_there(peer, f"data set {name!r}"))


class DatasetNames(tuple[str, ...], CardMixin):
    """The names of data sets, which a notebook shows as a table."""

    __slots__ = ()
    __repr__ = tuple.__repr__

    def _card(self) -> Card:
        rows = [(name,) for name in self]
        return Card(
            kind="Data sets", facts=[("published", f"{len(rows):,}")], tables=[CardTable(columns=("name",), rows=rows)]
        )


async def names(peer: Peer) -> DatasetNames:
    """Return all that is published, with Dask's verb or ours."""
    return DatasetNames(await peer.dask_end.list_datasets())


async def unpublish(peer: Peer, name: str) -> None:
    """Take a name back.

    Raises
    ------
    DataError
        Nothing is published under it.
    """
    if name not in await peer.dask_end.list_datasets():
        raise await unknown(peer, name)
    await peer.dask_end.unpublish_dataset(name)
