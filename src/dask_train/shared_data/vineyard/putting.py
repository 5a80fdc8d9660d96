"""A data set put into the daemons of its hosts: what runs in the Dask workers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Worker

from dask_train.data.columns import Column, column_of
from dask_train.errors import DataError
from dask_train.shared_data.vineyard.daemon import Daemon, connected, import_vineyard, vineyard_error
from dask_train.shared_data.vineyard.opening import FORM, FRAMES

# Key in the metadata of what tasks of a publication put: which one it was.
PUBLICATION = "dask_train_publication_"
# Most objects of a daemon that are looked through for those of a publication.
MOST_OBJECTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Put:
    """One partition's columns in a daemon.

    Attributes
    ----------
    instance
        The number of the daemon.
    tensors
        The ids of its columns; none if it has no rows.
    columns, num_rows
        What they are.
    """

    instance: int
    tensors: tuple[str, ...]
    columns: tuple[Column, ...]
    num_rows: int


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the whole becomes.

    Attributes
    ----------
    names
        Of a frame's columns; None makes one global tensor.
    form, frames
        What :func:`dask_train.from_vineyard` restores it from, JSON.
    """

    names: tuple[str, ...] | None
    form: str
    frames: str


class _Marking:
    """Vineyard's client, of which all that it makes carries the publication.

    Parameters
    ----------
    client
        Vineyard's own.
    publication
        Its name.
    """

    def __init__(self, client: Any, publication: str) -> None:
        self._client, self._publication = client, publication

    def create_metadata(self, meta: Any) -> Any:
        meta[PUBLICATION] = self._publication
        return self._client.create_metadata(meta)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def put(socket: str | None, publication: str, arrays: list[Any]) -> Put:
    """Put a partition's columns into the daemon on this host; one copy.

    Parameters
    ----------
    socket
        Of the daemon.
    publication
        By which :func:`clear` knows what was put; another one for each call of ``publish_dataset``.
    arrays
        The columns.

    Raises
    ------
    DataError
        There is no daemon, or its memory is full; then nothing of the partition stays.
    """
    daemon = connected(socket)
    columns = tuple(column_of(array) for array in arrays)
    ids: list[str] = []
    marking = _Marking(daemon.client, publication)
    if len(arrays[0]):
        try:
            with daemon.words("Putting a partition into Vineyard"):
                from vineyard.core.builder import put as put_here  # Client.put may take another daemon's memory

                for array in arrays:
                    ids.append(repr(put_here(marking, np.ascontiguousarray(array))).strip('"'))
        except BaseException:
            delete(socket, ids)
            raise
    return Put(instance=daemon.instance, tensors=tuple(ids), columns=columns, num_rows=len(arrays[0]))


def assemble(socket: str | None, form: Form, parts: Sequence[tuple[int, Put]]) -> list[str]:
    """Make the partitions of one daemon of their columns, for all daemons to know; the ids, in the same order.

    Parameters
    ----------
    socket
        Of that daemon.
    form
        What is made.
    parts
        The number of each partition, and what was put.
    """
    daemon = connected(socket)
    with daemon.words("Making partitions in Vineyard"):
        return [_assembled(daemon, form, number, part) for number, part in parts]


def _assembled(daemon: Daemon, form: Form, number: int, part: Put) -> str:
    if part.instance != daemon.instance:
        raise DataError(
            f"The Vineyard daemon at {daemon.path} has been started again while the data set was put into it.",
            change="Publish it again.",
        )
    vineyard = import_vineyard()
    meta = vineyard.ObjectMeta()
    nbytes = sum(column.row_bytes * part.num_rows for column in part.columns)
    if form.names is None:
        return _tensor_partition(daemon, number, part)
    meta["typename"] = "vineyard::DataFrame"
    meta["columns_"] = json.dumps(list(form.names))
    for place, (name, tensor) in enumerate(zip(form.names, part.tensors, strict=True)):
        meta[f"__values_-key-{place}"] = json.dumps(name)
        meta.add_member(f"__values_-value-{place}", daemon.id(tensor))
    meta["__values_-size"] = len(form.names)
    meta["nbytes"] = nbytes
    meta["partition_index_row_"], meta["partition_index_column_"] = number, 0
    meta["row_batch_index_"] = number
    partition = daemon.client.create_metadata(meta)
    daemon.client.persist(partition.id)
    return repr(partition.id).strip('"')


def _tensor_partition(daemon: Daemon, number: int, part: Put) -> str:
    """Return the same tensor with its place in the whole; both are on the same bytes."""
    meta = daemon.client.get_meta(daemon.id(part.tensors[0]))
    index = [number, *(0 for _ in part.columns[0].row_shape)]
    copied = daemon.client.shallow_copy(meta.id, {"partition_index_": json.dumps(index)})
    daemon.client.persist(copied)
    return repr(copied).strip('"')


def join(
    socket: str | None, form: Form, partitions: Sequence[str], num_rows: int, row_shape: Sequence[int], name: str
) -> str:
    """Make the global object of partitions, which all daemons know, and give it a name; its id."""
    daemon = connected(socket)
    from vineyard.data.dataframe import make_global_dataframe
    from vineyard.data.tensor import make_global_tensor

    metadata = {FORM: form.form, FRAMES: form.frames}
    ids = [daemon.id(each) for each in partitions]
    with daemon.words("Making the global object in Vineyard"):
        daemon.client.sync_meta()
        if form.names is None:
            shape, cut = (num_rows, *row_shape), (len(ids), *(1 for _ in row_shape))
            whole = make_global_tensor(daemon.client, ids, extra_meta=metadata, shape=shape, partition_shape=cut)
        else:
            whole = make_global_dataframe(daemon.client, ids, extra_meta=metadata)
        daemon.client.put_name(whole.id, name)
    return repr(whole.id).strip('"')


def named(socket: str | None, name: str) -> str | None:
    """Return the id of the object that has a name; None if none has, or the object that had it was deleted."""
    daemon, vineyard = connected(socket), import_vineyard()
    with daemon.words(f"Looking for {name!r}"):
        try:
            object_id = daemon.client.get_name(name)
            return repr(object_id).strip('"') if daemon.client.exists(object_id) else None
        except vineyard.ObjectNotExistsException:
            return None


def are_known(keys: Sequence[Any], dask_worker: Worker) -> bool:
    """Return whether a Dask worker knows some of these tasks: one that was cancelled while it runs, until it ends."""
    return any(key in dask_worker.state.tasks for key in keys)


def clear(socket: str | None, publication: str, kept_ids: Collection[str]) -> None:
    """Delete what tasks of a publication have put, but what it keeps, as far as the daemon is there.

    A Dask worker that is killed while it puts leaves objects whose ids nobody has.
    """
    with suppress(vineyard_error(), DataError):
        daemon, kept_ids = connected(socket), frozenset(kept_ids)
        for meta in daemon.client.list_metadatas("vineyard::*", limit=MOST_OBJECTS, nobuffer=True):
            if meta.get(PUBLICATION) == publication and repr(meta.id).strip('"') not in kept_ids:
                with suppress(vineyard_error()):  # a part of another one of these, and gone with it
                    daemon.client.delete(meta.id)


def delete(socket: str | None, ids: Sequence[str]) -> None:
    """Delete objects as far as they and the daemon are there."""
    with suppress(vineyard_error(), DataError):
        daemon = connected(socket)
        for each in ids:
            daemon.client.delete(daemon.id(each))
