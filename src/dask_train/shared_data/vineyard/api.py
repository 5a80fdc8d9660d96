"""The verb that opens an object of Vineyard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dask_train.cluster.clients import client_here
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.cluster.peer import Peer
from dask_train.input_errors import raises_at_the_call
from dask_train.shared_data.vineyard import dataset
from dask_train.shared_data.vineyard.daemon import id_in

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client
    from dask_train.shared_data.published import PublishedDataset


@raises_at_the_call
@frees_its_thread
def from_vineyard(
    object_id: Any,
    *,
    socket: str | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    client: Client | None = None,
) -> PublishedDataset:
    """Open an object of Vineyard as a data set, over all Dask workers of the cluster.

    Each Dask worker opens the partitions of the daemon on its own host. Columns of numbers are mapped where they lie,
    and not copied, if rows begin at addresses that can be mapped; text, and matrices of several columns, are copied
    once. The data set is protected from deletion while it is open, unless with Vineyard's ``force``.

    Parameters
    ----------
    object_id
        A ``vineyard.ObjectID``, its text, or the name that the object was given. A tensor, a data frame, an Arrow
        table or record batch, or a global tensor or global data frame of several partitions.
    socket
        Path of the daemon's socket on each host. Default: what ``VINEYARD_IPC_SOCKET`` says in the environment of each
        Dask worker, else ``/var/run/vineyard.sock``.
    features
        A name gives that column; a list gives one matrix of these columns. Default: all columns but the label; without
        a label, a dict of all columns, or the form in which :func:`publish_dataset` was given them.
    label
        Column that makes pairs of features and label. Default: none.
    client
        The task's own client in a Dask task, else ``distributed.default_client()``.

    Returns
    -------
    PublishedDataset
        Passes as data to :func:`fit`, :func:`train` and :func:`publish_dataset`, and has ``to_numpy``, ``to_tf``,
        ``to_torch`` and ``to_dask``. An awaitable of it with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        There is no client, or ``object_id`` is invalid.
    DataError
        No daemon answers, it has no such object, or the object can't be opened as rows.
    MissingPackageError
        Vineyard is not installed where the Dask workers run.

    Examples
    --------
    >>> data = dt.from_vineyard("mnist", features="x", label="y")
    >>> dt.fit(model, data, epochs=5)
    """
    identifier = id_in(object_id)
    name = identifier or str(object_id)
    peer = Peer(client_here(client))
    picks = (features, label)
    opened: dataset.VineyardDataset = peer.run(dataset.opened, peer, identifier, name, socket, picks)
    return opened
