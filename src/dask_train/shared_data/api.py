"""Named data sets in shared memory that outlive the run and the client, and ``persist``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.arguments import check_flags
from dask_train.cluster.clients import client_here, client_or_local
from dask_train.cluster.gathered import watched
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.cluster.peer import Peer
from dask_train.collections import check_data
from dask_train.collections.bags import bag_opened
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.published_frames import frames_in, without_missing
from dask_train.input_errors import raises_at_the_call
from dask_train.report.parts_progress import PartsDisplay
from dask_train.report.progress import check_progress
from dask_train.shared_data import published
from dask_train.shared_data.run_data import DataSetOnDask
from dask_train.shared_data.segments import SharedSegments
from dask_train.shared_data.vineyard import dataset as vineyard_dataset

if TYPE_CHECKING:
    import dask.array as da

    from dask_train.cluster.clients import Client
    from dask_train.collections import Source


@raises_at_the_call
@frees_its_thread
def publish_dataset(
    *data: Any,
    name: str,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    override: bool = False,
    client: Client | None = None,
    progress: bool | None = None,
    to: str | None = None,
    socket: str | None = None,
) -> Any:
    """Put a data set into the shared memory of the Dask workers, under a name that any client of the cluster can open.

    It stays when this client goes, until :func:`unpublish_dataset` or the end of the cluster. Dask computes lost
    partitions again, from what they were made of; data that was scattered is gone with its Dask worker.

    Parameters
    ----------
    *data
        As ``data=`` of :func:`~dask_train.train`: Dask, NumPy or sparse arrays, a frame, a dict of arrays, a bag of
        dicts, a list of delayed partitions; several values make a tuple, such as ``X, y``. Dask computes it where it
        is, and copies each partition once, into shared memory. What :func:`persist` has made is not copied again.
    name
        Its name, among all that Dask's own ``client.publish_dataset`` has given.
    features, label
        Of a frame or dict, which columns it is made of, as :func:`~dask_train.train` takes them. A frame without
        either keeps its columns by name, as a dict does; readers pick columns.
    override
        Replace what has the name, once this one is computed: both take memory until then. Default: False, which is an
        error where the name is taken.
    client
        The task's own client in a Dask task, else ``distributed.default_client()``; where there is
        none, a local cluster is started.
    progress
        Show how many partitions and rows are there, on standard error. Default: in terminals and notebooks;
        elsewhere, as in a log file, a line after 10 seconds and then one a minute. True writes one every 10 seconds.
    to
        ``"vineyard"`` puts each partition into the Vineyard daemon of its host instead, for programs without Dask: one
        global tensor of an array, else one global data frame. Default: the Dask workers' own shared memory.
    socket
        With ``to="vineyard"``, path of the daemon's socket on each host. Default: what ``VINEYARD_IPC_SOCKET`` says in
        the environment of each Dask worker, else ``/var/run/vineyard.sock``.

    Returns
    -------
    None, once all of it is computed; with ``to="vineyard"`` the id of the global object, a string. An awaitable with
    an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid; nothing has been started.
    DataError
        The name is taken, or a partition can't be computed.

    Examples
    --------
    >>> dt.publish_dataset(X, y, name="mnist")
    >>> dt.train(worker, data=dt.get_dataset("mnist"))
    """
    _check_name(name)
    if not data:
        raise ValueError("publish_dataset was given no data; pass it before the name: publish_dataset(X, y, name=...).")
    check_flags(override=override)
    check_progress(progress, waits=True)
    _check_place(to, socket)
    what = f"data set {name!r}"
    dataset = bag_opened(what, data[0] if len(data) == 1 else data)
    dataset = without_missing(what, dataset, features, label)
    if features is None and label is None and hasattr(dataset, "iloc") and hasattr(dataset, "columns"):
        dataset = {name: dataset[name] for name in dataset.columns}
    source = published.as_source(what, dataset, features=features, label=label, sparse=to is None)
    frames = () if isinstance(source, SharedSegments) else frames_in(what, dataset, features, label)
    peer = Peer(client_or_local(client, 0))
    check_progress(progress, waits=not peer.asynchronous)
    source = source.snapshot()  # lost partitions are computed again, whatever the program does to its arrays
    if to is not None:
        if isinstance(source, SharedSegments):
            frames, source = source.frames, check_data(what, source.arrays())
        return peer.run(vineyard_dataset.published, peer, name, source, socket, override, frames)
    if peer.asynchronous:
        return _publish(peer, what, name, source, override, frames)
    peer.run(published.check_name, peer, name, override)
    started = _started(peer, what, source, outlives=True)
    with _displayed(progress, "publishing", source) as display:
        return watched(peer, partial(_show, display, started), published.publish, peer, name, started, override, frames)


async def _publish(
    peer: Peer,
    what: str,
    name: str,
    source: Source | SharedSegments,
    override: bool,
    frames: tuple[FrameSchema | None, ...],
) -> None:
    await published.check_name(peer, name, override)
    await published.publish(peer, name, _started(peer, what, source, outlives=True), override, frames)


@raises_at_the_call
def get_dataset(name: str, *, client: Client | None = None) -> published.PublishedDataset:
    """Return a data set that :func:`publish_dataset` has named, from whichever client.

    Parameters
    ----------
    name
        Its name.
    client
        The task's own client in a Dask task, else ``distributed.default_client()``.

    Returns
    -------
    PublishedDataset
        Nothing is copied or opened yet. An awaitable of it with an asynchronous client.

    Raises
    ------
    ValueError
        There is no client.
    DataError
        There is no such data set, it is not in shared memory, or a part of it is lost.

    Examples
    --------
    >>> dt.fit(model, dt.get_dataset("mnist"), epochs=5)
    """
    _check_name(name)
    peer = Peer(client_here(client))
    opened: published.PublishedDataset = peer.run(published.get, peer, name)
    return opened


@raises_at_the_call
def list_datasets(*, client: Client | None = None) -> tuple[str, ...]:
    """Return the names of all published data sets, also of those that Dask's own verb has published.

    Parameters
    ----------
    client
        As :func:`get_dataset`.

    Returns
    -------
    tuple of str
        In order; an awaitable of it with an asynchronous client.

    Raises
    ------
    ValueError
        There is no client.

    Examples
    --------
    >>> dt.list_datasets()
    ('mnist',)
    """
    peer = Peer(client_here(client))
    names: tuple[str, ...] = peer.run(published.names, peer)
    return names


@raises_at_the_call
def unpublish_dataset(name: str, *, client: Client | None = None) -> Any:
    """Take a data set's name back; its memory is freed when it is no longer referenced or read.

    Parameters
    ----------
    name
        Its name.
    client
        As :func:`get_dataset`.

    Returns
    -------
    None; an awaitable with an asynchronous client.

    Raises
    ------
    ValueError
        There is no client.
    DataError
        There is no such data set.

    Examples
    --------
    >>> dt.unpublish_dataset("mnist")
    """
    _check_name(name)
    peer = Peer(client_here(client))
    return peer.run(published.unpublish, peer, name)


@raises_at_the_call
@frees_its_thread
def persist(*data: Any, client: Client | None = None, progress: bool | None = None) -> Any:
    """Compute arrays into the shared memory of the Dask workers, which runs then use without another copy.

    Like Dask's ``persist``, but it waits, so that rows and types are known and errors are raised here; and rows of all
    arrays lie together, in one block per partition.

    Parameters
    ----------
    *data
        Dask or NumPy arrays, a tuple or a dict of them, with the same rows; several values make a tuple.
    client
        The task's own client in a Dask task, else ``distributed.default_client()``; where there is
        none, a local cluster is started.
    progress
        Show how many partitions and rows are there, on standard error. Default: in terminals and notebooks;
        elsewhere, as in a log file, a line after 10 seconds and then one a minute. True writes one every 10 seconds.

    Returns
    -------
    The same arrays, as they were given: each ``(num_rows, *row_shape)`` with known chunks. Their blocks are read-only
    views of the shared memory, which is free when the arrays are gone. What is made of them by Dask is ordinary Dask;
    passed on as they are, all of them together, to ``train(data=...)`` or :func:`publish_dataset`, they are not copied
    again. An awaitable of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        It is something else; nothing has been started.
    DataError
        A partition can't be computed.

    Examples
    --------
    >>> X, y = dt.persist(X, y)
    >>> dt.train(worker, data=(X, y))
    """
    if not data:
        raise ValueError("persist was given no data; pass arrays.")
    arrays = data[0] if len(data) == 1 else data
    check_progress(progress, waits=True)
    _check_arrays(arrays)
    source = published.as_source("what is to be persisted", arrays, sparse=True)
    if isinstance(source, SharedSegments):
        return _persisted(Peer(source.futures[0].client), source, progress)
    peer = Peer(client_or_local(client, 0))
    return _persisted(peer, source.snapshot(), progress, outlives=True)


@frees_its_thread
def shared_arrays(what: str, columns: tuple[Any, ...], client: Client | None = None) -> tuple[da.Array, ...]:
    """Columns of the same rows as :func:`persist` gives them; frames of Dask, too, each partition computed once.

    Raises
    ------
    TypeError, ValueError, DataError
        As of :func:`persist`; the message calls the data ``what``.
    """
    source = published.as_source(what, columns, sparse=True)
    if isinstance(source, SharedSegments):
        return columns
    arrays: tuple[da.Array, ...] = _persisted(Peer(client_or_local(client, 0)), source, progress=False, what=what)
    return arrays


def _persisted(
    peer: Peer,
    source: Source | SharedSegments,
    progress: bool | None,
    what: str = "what is to be persisted",
    *,
    outlives: bool = False,
) -> Any:
    check_progress(progress, waits=not peer.asynchronous)
    if peer.asynchronous:
        return _arrays(peer, what, partial(_started, peer, what, source, outlives=outlives))
    data = _started(peer, what, source, outlives=outlives)
    with _displayed(progress, "persisting", source) as display:
        return watched(peer, partial(_show, display, data), _arrays, peer, what, lambda: data)


def _displayed(progress: bool | None, what: str, source: Source | SharedSegments) -> PartsDisplay:
    lengths = None if source.lengths is None else [int(length) for length in source.lengths]
    return PartsDisplay(progress, what=what, rows=lengths)


def _show(display: PartsDisplay, data: DataSetOnDask | SharedSegments) -> None:
    if isinstance(data, DataSetOnDask):
        display.done(data.done, len(data.keys))


async def _arrays(peer: Peer, what: str, started: Callable[[], DataSetOnDask | SharedSegments]) -> Any:
    segments = await published.computed(peer, what, started())
    return segments.arrays()


def _started(
    peer: Peer, what: str, source: Source | SharedSegments, *, outlives: bool
) -> DataSetOnDask | SharedSegments:
    return source if isinstance(source, SharedSegments) else DataSetOnDask(peer, what, source, outlives=outlives)


def _check_place(to: Any, socket: Any) -> None:
    if to not in (None, "vineyard"):
        raise ValueError(f"to is {to!r}; pass 'vineyard', or leave it out for the Dask workers' own shared memory.")
    if to is None and socket is not None:
        raise ValueError("socket is that of a Vineyard daemon; pass to='vineyard' with it, or leave it out.")


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"name is {name!r}; a data set's name is a string that is not empty.")


def _check_arrays(data: Any) -> None:
    values = data.values() if isinstance(data, Mapping) else data if isinstance(data, tuple | list) else (data,)
    for value in values:
        if not hasattr(value, "dtype") or hasattr(value, "iloc"):
            raise TypeError(
                f"persist was given a {type(value).__name__}; it takes Dask or NumPy arrays, a tuple or a dict of "
                "them. Of a frame, publish_dataset(frame, name=..., features=..., label=...) makes columns of numbers, "
                "and frame[columns].to_dask_array(lengths=True) arrays."
            )
