"""Which client of Dask a call uses; the one place that looks for it, and where its type is had from."""

from __future__ import annotations

import os
from typing import Any

from distributed import Client, get_client

from dask_train.cluster.local import start_local_cluster
from dask_train.cluster.random_numbers import leave_to_program
from dask_train.printing import say

__all__ = ["Client", "checked_client", "client_here", "client_or_local", "client_or_none"]


def checked_client(client: Any) -> Client:
    """Return what a user has passed as ``client=``; a TypeError if it is no client, a ValueError if it is closed."""
    if not isinstance(client, Client):
        raise TypeError(f"client is {client!r}; pass a distributed.Client, such as Client('tcp://10.0.0.1:8786').")
    if client.status in ("closing", "closed"):
        raise ValueError(f"client is {client.status}. Pass one that is open, or leave client out.")
    return client


def client_or_none(client: Client | None) -> Client | None:
    """Return the client that was passed, that of the Dask task which calls, or the default one, if there is any.

    What it draws from now on is not of the random numbers that the program has seeded.

    Raises
    ------
    TypeError, ValueError
        What was passed is no client, or closed.
    """
    leave_to_program()
    if client is not None:
        return checked_client(client)
    try:
        return get_client()
    except ValueError:
        return None


def client_here(client: Client | None) -> Client:
    """Do as :func:`client_or_none`, for what a new cluster would not have.

    Raises
    ------
    ValueError
        There is no client.
    TypeError
        What was passed is no client.
    """
    resolved = client_or_none(client)
    if resolved is None:
        raise ValueError(
            "There is no Dask client here. Make one first, with the scheduler's address: distributed.Client(address)."
        )
    return resolved


def client_or_local(client: Client | None, num_workers: int) -> Client:
    """Return what :func:`client_or_none` does, or the client of a new local cluster, with a line that says so.

    Parameters
    ----------
    client
        What the user passed.
    num_workers
        How many Dask workers a new cluster gets; 0 for one a core.
    """
    resolved = client_or_none(client)
    if resolved is None:
        num_workers = num_workers or os.cpu_count() or 1
        resolved = Client(start_local_cluster(num_workers))
        leave_to_program()  # modules that were imported with it
        say(f"there is no Dask client, so a local cluster was started: {resolved}")
    return resolved
