"""Vineyard's objects from the client's side: opened as data sets over all Dask workers, and made of data sets."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from distributed import Future, as_completed

from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.cluster.submitted import preferring, submitted
from dask_train.collections.pickled import carried
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.source import Source
from dask_train.config import Deadlines, memory_limit
from dask_train.data.columns import Columns, same_columns
from dask_train.errors import DataError
from dask_train.shared_data.described import cancel, check_computed, describe
from dask_train.shared_data.parts import PART, BatchForm
from dask_train.shared_data.published import PublishedDataset
from dask_train.shared_data.segments import SharedSegments
from dask_train.shared_data.vineyard import opening, putting
from dask_train.shared_data.vineyard.beside import Daemons, submit
from dask_train.shared_data.vineyard.opening import OpenedObject
from dask_train.shared_data.vineyard.putting import Form, Put

# Between two looks whether Dask workers still put something, seconds.
_LOOK_S = 0.1

Picks = tuple[str | Sequence[str] | None, ...]


class VineyardDataset(PublishedDataset):
    """A data set in the memory of Vineyard's daemons; :func:`~dask_train.from_vineyard` gives it.

    Has all of :class:`~dask_train.PublishedDataset`. The object stays in Vineyard when this one is gone.
    """

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"Vineyard's object {self.name!r} is mapped into this process and can't travel. Send its id, and open it "
            f"there: dt.from_vineyard({self.name!r})."
        )


async def opened(
    peer: Peer, object_id: str | None, name: str, socket: str | None, picks: tuple[Any, str | None]
) -> VineyardDataset:
    """Open an object as a data set.

    Parameters
    ----------
    peer
        The client.
    object_id, name
        As of :func:`~dask_train.shared_data.vineyard.opening.describe`.
    socket
        Of the daemons; None for what each Dask worker's environment says.
    picks
        ``features`` and ``label``.

    Raises
    ------
    DataError
        No Dask worker has a daemon, there is no such object, or it can't be opened.
    """
    await ensure_plugin(peer)
    what, daemons = f"Vineyard's object {name!r}", await Daemons.find(peer, socket)
    opened_object: OpenedObject = await daemons.ask(None, opening.describe, object_id, name)
    columns, names, is_tuple = _chosen(name, opened_object, *picks)
    task = carried(opening.segment, socket)
    futures, present = [], await peer.workers()
    for identifier, instance in opened_object.partitions:
        near = [address for address, number in daemons.numbers.items() if number == instance]
        futures += [
            submit(
                peer, task, identifier, columns, memory_limit(), **preferring(near or list(daemons.numbers), present)
            )
        ]
    try:
        await _computed(futures, what, peer.loop)
        descriptions, where = await describe(peer, what, [future.key for future in futures])
        parts = [descriptions[future.key] for future in futures]
        schema = Columns(columns=same_columns(parts), names=names, is_tuple=is_tuple)
    except BaseException as error:
        await cancel(peer, futures)
        if isinstance(error, ValueError):
            raise DataError(f"{what}: {error}.") from error
        raise
    segments = SharedSegments(
        schema=schema,
        lengths=np.array([num_rows for num_rows, _ in parts], np.int64),
        futures=tuple(futures),
        frames=frames_of(opened_object, columns),
    )
    return VineyardDataset(peer, opened_object.identifier, segments, [where[future.key] for future in futures])


def _chosen(
    name: str, opened_object: OpenedObject, features: Any, label: str | None
) -> tuple[Picks, tuple[str, ...] | None, bool]:
    """Return what makes each column of the data set, their names where it is a dict, and whether it is a tuple."""
    if opened_object.columns is None:
        if features is not None or label is not None:
            raise DataError(f"Vineyard's object {name!r} is a tensor, without columns; leave features= and label= out.")
        return (None,), None, False
    feature_names = [features] if isinstance(features, str) else list(features or ())
    for each in [*feature_names, *([] if label is None else [label])]:
        if each not in opened_object.columns:
            raise DataError(
                f"Vineyard's object {name!r} has no column {each!r}; it has "
                f"{', '.join(map(repr, opened_object.columns))}."
            )
    if features is None and label is None:
        form: dict[str, Any] = (
            json.loads(opened_object.form)
            if opened_object.form
            else {"names": list(opened_object.columns), "is_tuple": False}
        )
        names = None if form["names"] is None else tuple(form["names"])
        return opened_object.columns, names, bool(form["is_tuple"])
    rest: Any = features if features is not None else [each for each in opened_object.columns if each != label]
    chosen = rest if isinstance(rest, str) else tuple(rest)
    return ((chosen,), None, False) if label is None else ((chosen, label), None, True)


def frames_of(opened_object: OpenedObject, columns: Picks) -> tuple[FrameSchema | None, ...]:
    """Return what each column of the data set was cut from; empty if nothing is known of the object."""
    contents = json.loads(opened_object.frames) if opened_object.frames else []
    if not contents:
        return ()
    found = [None if content is None else FrameSchema.from_json(content) for content in contents]
    if opened_object.columns is None:
        return tuple(found)
    by_name = dict(zip(opened_object.columns, found, strict=True))
    return tuple(_frame(each, by_name) for each in columns)


def _frame(names: Any, by_name: Mapping[str, FrameSchema | None]) -> FrameSchema | None:
    """Return what one column was cut from, or a matrix of several."""
    if not isinstance(names, tuple):
        return by_name[names]
    several = [by_name[name] for name in names]
    known = [each for each in several if each is not None]
    columns = tuple(column for each in known for column in each.columns)
    if not columns:
        return None
    are_all = len(known) == len(several)  # of an array beside them the name is not known
    return FrameSchema(columns=columns, features=[column.name for column in columns] if are_all else None)


async def published(
    peer: Peer,
    name: str,
    source: Source,
    socket: str | None,
    override: bool,
    frames: tuple[FrameSchema | None, ...],
) -> str:
    """Put a data set into the daemons on the hosts of the Dask workers that compute it; the global object's id.

    Raises
    ------
    DataError
        The name is taken, a partition can't be computed, or a daemon is gone or full: then nothing of it stays.
    """
    await ensure_plugin(peer)
    daemons = await Daemons.find(peer, socket)
    if not override and (object_there := await daemons.ask(None, putting.named, name)):
        raise DataError(
            f"Vineyard has an object {name!r} already, {object_there}.",
            change="Take another name, or give the name to the new one: override=True. The old object stays.",
        )
    what, form_of = f"data set {name!r}", BatchForm(peer, source)
    publication = uuid.uuid4().hex
    parts = source.delayed_parts(PART, carried(putting.put, socket, publication))
    futures = submitted(peer.dask_end, parts, **preferring(list(daemons.numbers), await peer.workers()))
    ids_by_instance: dict[int, list[str]] = {}
    try:
        await _computed(futures, what, peer.loop)
        put_parts: list[Put] = await peer.gather(futures)
        columns = same_columns((part.num_rows, part.columns) for part in put_parts)
        filled = [(number, part) for number, part in enumerate(part for part in put_parts if part.num_rows)]
        if not filled:
            raise DataError(f"{what} has no rows.")
        schema = await form_of.schema(columns)
        form = _form(schema, frames)
        for instance, members in _by_instance(filled).items():
            ids_by_instance[instance] = await daemons.ask(instance, putting.assemble, form, members)
        in_turn = {instance: iter(ids) for instance, ids in ids_by_instance.items()}
        partitions = [next(in_turn[part.instance]) for _, part in filled]
        num_rows = sum(part.num_rows for _, part in filled)
        joined: str = await daemons.ask(None, putting.join, form, partitions, num_rows, columns[0].row_shape, name)
    except BaseException as error:
        await _stop(peer, futures)
        await _clear(daemons, publication, kept_ids=(), gone_ids=ids_by_instance)
        if isinstance(error, ValueError):
            raise DataError(f"{what}: {error}.") from error
        raise
    finally:
        await cancel(peer, futures)
    await _clear(daemons, publication, [*partitions, *(tensor for part in put_parts for tensor in part.tensors)])
    return joined


def _form(schema: Columns, frames: tuple[FrameSchema | None, ...]) -> Form:
    names = schema.names
    if schema.is_tuple or (names is None and len(schema.columns) > 1):
        names = tuple("xy"[number] if number < 2 else str(number) for number in range(len(schema.columns)))
    schema_names = None if schema.names is None else list(schema.names)
    return Form(
        names=names,
        form=json.dumps({"names": schema_names, "is_tuple": schema.is_tuple}),
        frames=json.dumps([None if frame is None else frame.to_json() for frame in frames]),
    )


def _by_instance(parts: Iterable[tuple[int, Put]]) -> dict[int, list[tuple[int, Put]]]:
    parts_by_instance: dict[int, list[tuple[int, Put]]] = {}
    for number, part in parts:
        parts_by_instance.setdefault(part.instance, []).append((number, part))
    return parts_by_instance


async def _stop(peer: Peer, futures: Sequence[Future]) -> None:
    """Let nothing more be put: what has not begun never does, and what is being put is waited for.

    Dask workers that hang are waited for no longer than ``train.progress.timeout``.
    """
    keys = [future.key for future in futures]
    await cancel(peer, futures)
    with suppress(TimeoutError):
        async with asyncio.timeout(Deadlines.from_dask_config().progress_s):
            while any((await peer.on_workers(putting.are_known, keys, on_error="ignore")).values()):
                await asyncio.sleep(_LOOK_S)


async def _clear(
    daemons: Daemons,
    publication: str,
    kept_ids: Sequence[str],
    gone_ids: Mapping[int, list[str]] = MappingProxyType({}),
) -> None:
    """Delete what tasks of a publication have put, from daemons whose hosts still have Dask workers.

    Parameters
    ----------
    kept_ids
        What stays of it.
    gone_ids
        What else goes, made of it, by the number of the daemon.
    """
    with suppress(DataError):  # there are none, or a daemon is gone
        now = await daemons.as_of_now()
        for instance in sorted(set(now.numbers.values())):
            if gone := gone_ids.get(instance):
                await now.ask(instance, putting.delete, gone)
            await now.ask(instance, putting.clear, publication, kept_ids)


async def _computed(futures: Sequence[Future], what: str, loop: Any) -> None:
    """Wait for all, or for the first one that fails."""
    async for future in as_completed(futures, loop=loop):
        if future.status == "error" and isinstance(error := await future.exception(), DataError):
            raise error
        await check_computed(future, what)
