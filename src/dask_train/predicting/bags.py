"""Bags of dicts as rows of a prediction, of which the first partition has to be seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_train.cluster.gathered import gathered
from dask_train.cluster.in_tasks import thread_is_free
from dask_train.collections.bags import BagRows, first_row, is_bag

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def as_rows(what: str, x: Any, client: Client | None) -> Any:
    """Return a bag with its first row, for which the first partition is computed here; other data as it is.

    Parameters
    ----------
    what
        How errors call it.
    x
        As users pass it.
    client
        Whose Dask workers compute the row. None: the threads of this process do.

    Raises
    ------
    ValueError
        There is no row, it is no dict, or the client is asynchronous and so can't be waited for.
    """
    if not is_bag(x):
        return x
    if client is not None and client.asynchronous:
        raise ValueError(
            f"{what} is a bag, of which the first partition has to be computed now, and the client is asynchronous. "
            "Pass a frame, bag.to_dataframe(meta=...), or a client that is not."
        )
    first = first_row(what, x)
    with thread_is_free():
        row = first.compute(scheduler="threads") if client is None else gathered(client, first)
    return BagRows.of(what, x, row)
