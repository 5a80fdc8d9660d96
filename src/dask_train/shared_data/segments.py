"""Segments that exist: a published data set's or a persisted collection's, as a source of data that is not copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask import delayed
from distributed import Future

from dask_train.cluster.peer import Peer
from dask_train.collections import shared
from dask_train.collections.blocks import delayed_blocks, has_sparse_blocks
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.errors import DataError

# Marks what is published as ours, and says how it is written.
_MARK, _FORM = "dask-train data set", 1
# Of a column that is sparse, behind its dtype and the shape of a row.
_SPARSE = "sparse"


@dataclass(frozen=True, kw_only=True)
class SharedSegments:
    """A data set whose partitions are segments in Dask's memory already.

    Attributes
    ----------
    schema, lengths
        Its columns, and int64 ``(num_partitions,)``: rows of each partition.
    futures
        Of the segments, in order; Dask keeps them for as long as these are referenced.
    frames
        A schema of the frame that each column was, None for an array. Empty if all were arrays.
    """

    schema: Columns
    lengths: np.ndarray = field(repr=False)
    futures: tuple[Future, ...] = field(repr=False)
    frames: tuple[FrameSchema | None, ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns' names where it is a dict."""
        return self.schema.names

    @property
    def is_tuple(self) -> bool:
        """Whether it is a tuple."""
        return self.schema.is_tuple

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns, as of any source."""
        return self.schema.columns

    @property
    def keys(self) -> list[Any]:
        """The segments' keys, in order."""
        return [future.key for future in self.futures]

    @property
    def num_rows(self) -> int:
        """Rows of all partitions."""
        return int(self.lengths.sum())

    @property
    def nbytes(self) -> int | None:
        """Bytes of all rows; None if there is text or a sparse column, whose rows take different numbers of bytes."""
        if any(column.layout is not None for column in self.columns):
            return None
        return self.num_rows * self.schema.row_bytes

    def arrays(self) -> Any:
        """Return the data set as Dask arrays in the shape that it has; their blocks are views of the segments.

        Returns
        -------
        A Dask array, a tuple or a dict of them, with known chunks: one block per partition, rows whole.
        """
        arrays = self._arrays()
        if self.names is not None:
            return dict(zip(self.names, arrays, strict=True))
        return tuple(arrays) if self.is_tuple else arrays[0]

    def array(self, number: int) -> Any:
        """Return a column by its number, as a Dask array of :meth:`arrays`."""
        return self._arrays()[number]

    def _arrays(self) -> list[Any]:
        segments = dict(zip(self.keys, self.futures, strict=True))
        return list(shared.arrays_of(segments, self.schema.columns, self.lengths.tolist()))

    def snapshot(self) -> SharedSegments:
        """Return the same, which nobody writes into."""
        return self

    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        """Return one delayed result for each partition, as of any source; the columns are views of shared memory."""
        _ = part  # they are as a run takes them already
        make = delayed(finish, pure=False)
        return [make(list(blocks)) for blocks in zip(*delayed_blocks(self._arrays()), strict=True)]

    def record(self) -> dict[str, Any]:
        """Return what is published: plain values, and the futures where Dask looks for them."""
        return {
            _MARK: _FORM,
            "columns": [
                [column.dtype, list(column.row_shape), *[_SPARSE] * column.is_sparse] for column in self.schema.columns
            ],
            "names": None if self.names is None else list(self.names),
            "is_tuple": self.is_tuple,
            "lengths": self.lengths.tolist(),
            "futures": list(self.futures),
            "frames": [None if frame is None else frame.to_json() for frame in self.frames],
        }

    async def check_there(self, peer: Peer, what: str) -> list[list[str]]:
        """Check that every partition is somewhere, or is being computed again.

        Returns
        -------
        The addresses of the Dask workers that hold each partition; none if it is being computed.

        Raises
        ------
        DataError
            One is lost.
        """
        answer = await peer.ask("train_run_who_has", keys=self.keys)
        if answer["lost"]:
            raise lost(what, self.keys.index(answer["lost"][0]), len(self.futures))
        where = {key: list(addresses) for key, addresses in answer["where"]}
        return [where[key] for key in self.keys]


def lost(what: str, partition: int, num_partitions: int) -> DataError:
    """Return the error for a partition that is in no memory and can't be computed again."""
    return DataError(
        f"Partition {partition} of {num_partitions} of {what} is lost.",
        "Its Dask worker has gone, and Dask can't compute it again: it was made of data that was scattered, or what "
        "it was made of can't be computed any more; or the segments are another cluster's.",
        "Make it of data that Dask computes, and publish or persist it again: "
        "dt.publish_dataset(..., override=True) replaces it.",
    )


def is_data_set(data: Any) -> bool:
    """Return whether a value is a data set, as of :func:`~dask_train.get_dataset`; arrays of its columns are none."""
    return isinstance(getattr(data, "segments", None), SharedSegments)  # a frame may have a column of that name


def segments_in(data: Any, *, decodes: bool = False) -> SharedSegments | None:
    """Return the segments of which a value is all columns, and nothing else; None for any other value.

    Parameters
    ----------
    data
        Anything: what :meth:`SharedSegments.record` gives, a data set, arrays of :meth:`SharedSegments.arrays`.
    decodes
        Whether arrays of :func:`~dask_train.collections.shared.decoded` count, too: for readers of batches, which
        decode the rows. Default: they are other arrays, whose rows are to be copied.
    """
    if isinstance(segments := getattr(data, "segments", None), SharedSegments):
        return segments
    if isinstance(data, dict) and data.get(_MARK) == _FORM:
        return _of_record(data)
    return _of_arrays(data, decodes=decodes)


def _of_record(record: Mapping[str, Any]) -> SharedSegments:
    columns = tuple(
        Column(dtype=dtype, row_shape=tuple(shape), is_sparse=_SPARSE in kind)
        for dtype, shape, *kind in record["columns"]
    )
    names = None if record["names"] is None else tuple(record["names"])
    return SharedSegments(
        schema=Columns(columns=columns, names=names, is_tuple=record["is_tuple"]),
        lengths=np.array(record["lengths"], np.int64),
        futures=tuple(record["futures"]),
        frames=tuple(None if frame is None else FrameSchema.from_json(frame) for frame in record.get("frames", ())),
    )


def _of_arrays(data: Any, *, decodes: bool) -> SharedSegments | None:
    is_tuple, names = isinstance(data, tuple | list), None
    arrays: tuple[Any, ...] = tuple(data) if is_tuple else (data,)
    if isinstance(data, Mapping):
        names, arrays = tuple(map(str, data)), tuple(data.values())
    origins = [shared.origin_of(array) for array in arrays]
    if not origins or origins[0] is None or (names is not None and len(set(names)) < len(names)):
        return None  # names that are the same as text are refused where other data is opened
    if len(origins) != origins[0].num_columns:
        return None
    columns = []
    for number, (each, array) in enumerate(zip(origins, arrays, strict=True)):
        if each is None or list(each.segments) != list(origins[0].segments) or each.number != number:
            return None
        if each.decoded is not None and not decodes:
            return None
        row_shape = tuple(map(int, array.shape[1:]))
        stored = Column(dtype=array.dtype.str, row_shape=row_shape, is_sparse=has_sparse_blocks(array))
        columns.append(each.decoded or stored)
    return SharedSegments(
        schema=Columns(columns=tuple(columns), names=names, is_tuple=is_tuple),
        lengths=np.array(arrays[0].chunks[0], np.int64),
        futures=tuple(origins[0].segments.values()),
    )


async def published_value(peer: Peer, name: str) -> Any:
    """Return what was published under a name, with Dask's verb or ours.

    Raises
    ------
    DataError
        Nothing was.
    """
    try:
        return await peer.dask_end.get_dataset(name)
    except KeyError:
        raise await unknown(peer, name) from None


async def unknown(peer: Peer, name: str) -> DataError:
    """Return the error for a name under which nothing is published."""
    known = ", ".join(map(str, await peer.dask_end.list_datasets())) or "none"
    return DataError(f"No data set {name!r} is published; there are {known}.")


def in_words(columns: Mapping[str, Column]) -> str:
    """Return the columns, for people: ``x float32 (28, 28), y int64``, ``x sparse float64 (1000,)``."""
    words = []
    for name, column in columns.items():
        shape = f" {column.row_shape}" if column.row_shape else ""
        words.append(f"{name} {'sparse ' * column.is_sparse}{np.dtype(column.dtype)}{shape}")
    return ", ".join(words)
