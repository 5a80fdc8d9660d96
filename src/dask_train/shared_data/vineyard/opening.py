"""A Vineyard object opened in a Dask worker: what it is, where its arrays are mapped, its partitions as segments."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dask_train.data.columns import column_of
from dask_train.data.lent import LentSegment, MappedMemory
from dask_train.data.segment import Segment
from dask_train.errors import DataError
from dask_train.shared_data.vineyard.daemon import Daemon, connected
from dask_train.shared_data.vineyard.leases import Lease, end_leases_of_the_dead

# Names of the keys in which publish_dataset says what the data set was.
FORM, FRAMES = "dask_train_form_", "dask_train_frames_"

_TENSOR, _GLOBAL_TENSOR = "vineyard::Tensor<", "vineyard::GlobalTensor"
_FRAME, _GLOBAL_FRAME = "vineyard::DataFrame", "vineyard::GlobalDataFrame"
_TABLES = ("vineyard::Table", "vineyard::RecordBatch")


@dataclass(frozen=True, kw_only=True)
class OpenedObject:
    """What an object is.

    Attributes
    ----------
    identifier, type_name
        Its id, and what Vineyard calls its type.
    partitions
        ``(id, instance)`` of each, in order: the number of the daemon that holds it.
    columns
        Names of a frame's columns; None of a tensor.
    form, frames
        As :func:`dask_train.publish_dataset` has left them, JSON; None if another program has made the object.
    """

    identifier: str
    type_name: str
    partitions: tuple[tuple[str, int], ...]
    columns: tuple[str, ...] | None
    form: str | None = None
    frames: str | None = None


def instance(socket: str | None) -> int:
    """Return the number of the daemon on this host."""
    return connected(socket).instance


def describe(socket: str | None, object_id: str | None, name: str) -> OpenedObject:
    """Return what an object is; its rows are not touched.

    Parameters
    ----------
    socket
        Of the daemon.
    object_id
        The object's; None to look it up.
    name
        How the user calls it: its id, or the name that it was given.

    Raises
    ------
    DataError
        There is no such object, it is no tensor, frame or table, or it is not cut by rows alone.
    """
    daemon = connected(socket)
    with daemon.words(f"Opening {name!r}"):
        identifier = daemon.client.get_name(name) if object_id is None else daemon.id(object_id)
        meta = daemon.client.get_meta(identifier, sync_remote=True)
    type_name, members = str(meta.typename), [meta]
    if type_name in (_GLOBAL_TENSOR, _GLOBAL_FRAME):
        members = [meta[f"partitions_-{number}"] for number in range(int(meta["partitions_-size"]))]
        members = _in_order(name, members)
    if not members:
        raise DataError(f"Vineyard's object {name!r} has no partitions.")
    return OpenedObject(
        identifier=_text(meta.id),
        type_name=type_name,
        partitions=tuple((_text(member.id), int(member.instance_id)) for member in members),
        columns=_column_names(daemon, name, members[0]),
        form=meta.get(FORM, None),
        frames=meta.get(FRAMES, None),
    )


def segment(
    socket: str | None, object_id: str, picks: Sequence[str | Sequence[str] | None], limit: int | None
) -> Segment:
    """Return one partition as a segment: in the daemon's own memory where its layout allows, else copied once.

    Parameters
    ----------
    socket, object_id
        The daemon on this host, and the partition, which another daemon may hold: then it is copied from there.
    picks
        What makes each column: a name, None for a tensor, or names that make a matrix, which is copied.
    limit
        As of :func:`~dask_train.worker.segments.make_segment`.

    Raises
    ------
    DataError
        The object is gone, or its columns can't be had.
    """
    daemon = connected(socket)
    with daemon.words(f"Opening partition {object_id}"):
        meta = daemon.client.get_meta(daemon.id(object_id), sync_remote=True)
        is_here = int(meta.instance_id) == daemon.instance
        # Before anything is read: what is deleted from now on stays.
        lease = Lease(daemon, daemon.client.get_object(meta.id)) if is_here else None
        arrays_by_name = _arrays(daemon, meta)
    arrays = [
        arrays_by_name[pick] if pick is None or isinstance(pick, str) else _matrix(arrays_by_name, pick)
        for pick in picks
    ]
    columns = [column_of(array) for array in arrays]
    here = spots(arrays) if lease is not None else None
    if here is not None and LentSegment.fits(columns, [spot.offset for spot in here]):
        lent = MappedMemory(
            descriptor=here[0].descriptor,
            inode=here[0].inode,
            offsets=tuple(spot.offset for spot in here),
            owner=(lease, arrays),
        )
        end_leases_of_the_dead(daemon)
        return LentSegment(columns, len(arrays[0]), lent)
    from dask_train.worker.segments import make_segment

    return make_segment(arrays, limit)


def _in_order(name: str, members: list[Any]) -> list[Any]:
    """Partitions by their place along the rows, where all of them have one; else as they are listed."""
    places = []
    for member in members:
        index = member.get("partition_index_", None)
        place = json.loads(index) if isinstance(index, str) else []
        if len(place) > 1 and any(place[1:]):
            raise DataError(
                f"Vineyard's object {name!r} is cut along other axes than that of rows.",
                change="Cut it by rows alone, X.rechunk({0: 'auto', 1: -1}) in Dask, and put it there again.",
            )
        row = place[0] if place else member.get("partition_index_row_", -1)
        places.append(int(row))
    if min(places, default=-1) < 0 or len(set(places)) < len(places):
        return members
    return [member for _, member in sorted(zip(places, members, strict=True), key=lambda pair: pair[0])]


def _column_names(daemon: Daemon, name: str, meta: Any) -> tuple[str, ...] | None:
    type_name = str(meta.typename)
    if type_name.startswith(_TENSOR):
        return None
    if type_name == _FRAME:
        return tuple(map(str, json.loads(meta["columns_"])))
    if type_name in _TABLES:
        with daemon.words(f"Opening {name!r}"):
            return tuple(map(str, daemon.client.get(meta.id).schema.names))
    raise DataError(
        f"Vineyard's object {name!r} is a {type_name}.",
        change="from_vineyard opens tensors, frames, Arrow tables, and global objects of these; get others with "
        "Vineyard's own client.",
    )


def _arrays(daemon: Daemon, meta: Any) -> Mapping[str | None, np.ndarray]:
    """Return a partition's columns by name, or its one array under None; views where Vineyard gives some."""
    type_name = str(meta.typename)
    if type_name.startswith(_TENSOR):
        return {None: _plain(daemon.client.get(meta.id))}
    if type_name == _FRAME:
        names = [str(json.loads(meta[f"__values_-key-{number}"])) for number in range(int(meta["__values_-size"]))]
        members = [meta[f"__values_-value-{number}"] for number in range(len(names))]
        return {name: _plain(daemon.client.get(member.id)) for name, member in zip(names, members, strict=True)}
    table = daemon.client.get(meta.id)
    return {str(name): _plain(_of_arrow(table.column(number))) for number, name in enumerate(table.schema.names)}


def _of_arrow(column: Any) -> Any:
    if hasattr(column, "num_chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column.to_numpy(zero_copy_only=False)


def _plain(value: Any) -> np.ndarray:
    """As a plain array: Vineyard's are a class of its own, which keeps the memory they are views of."""
    array: np.ndarray = np.asarray(value).view(np.ndarray)
    return array


def _matrix(arrays_by_name: Mapping[str | None, np.ndarray], names: Sequence[str]) -> np.ndarray:
    for name in names:
        if arrays_by_name[name].ndim != 1:
            raise DataError(
                f"Column {name!r} has rows of shape {arrays_by_name[name].shape[1:]}, and a matrix is made of columns "
                f"of single numbers. Name it alone: features={name!r}."
            )
    return np.column_stack([arrays_by_name[name] for name in names])


def _text(object_id: Any) -> str:
    return repr(object_id).strip('"')


class Spot(NamedTuple):
    """A byte of a file that this process has open."""

    descriptor: int
    inode: int
    offset: int


def spots(arrays: Sequence[np.ndarray]) -> list[Spot] | None:
    """Return where arrays begin, which are C-contiguous and all in one memfd; None if any is elsewhere.

    Read from ``/proc/self/maps``, see proc_pid_maps(5).
    """
    if not arrays or not all(array.flags.c_contiguous and array.nbytes for array in arrays):
        return None
    locations = []
    with open("/proc/self/maps") as lines:
        maps = [line.split(maxsplit=5) for line in lines if "/memfd:" in line]
    for array in arrays:
        address = array.__array_interface__["data"][0]
        for span, _, start, _, inode, _ in maps:
            first, end = (int(edge, 16) for edge in span.split("-"))
            if first <= address and address + array.nbytes <= end:
                locations.append((int(inode), int(start, 16) + address - first))
    if len(locations) != len(arrays) or len({inode for inode, _ in locations}) != 1:
        return None
    descriptor = _descriptor_of(locations[0][0])
    return None if descriptor is None else [Spot(descriptor, inode, offset) for inode, offset in locations]


def _descriptor_of(inode: int) -> int | None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_ino == inode and "/memfd:" in os.readlink(f"/proc/self/fd/{name}"):
                return int(name)
        except OSError:  # closed meanwhile, as the one that lists them is
            continue
    return None
