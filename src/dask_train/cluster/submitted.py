"""Delayed values as futures: the one place where the library gives Dask what it has made of a user's rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import dask
from dask.base import get_scheduler
from dask.delayed import Delayed
from distributed import Client, Future

from dask_train.cluster.client_rows import HeldRows, Ticket
from dask_train.cluster.in_tasks import thread_is_free
from dask_train.collections.rows_apart import Open, apart


def submitted(client: Client, values: Any, **how: Any) -> Any:
    """Give Dask what is to be computed, as ``Client.compute`` does, except for rows that the graph holds.

    Arrays and frames in the graph of delayed values stay in this process until tasks open them, and for as long as one
    of the futures is there, so what is lost is computed again. They must not change meanwhile.

    Parameters
    ----------
    values
        A delayed value, or a list of them. Other collections are given to Dask as they are.
    **how
        Of ``Client.compute``.

    Returns
    -------
    distributed.Future, or a list of them
    """
    several = values if isinstance(values, list | tuple) else [values]
    if not all(isinstance(value, Delayed) for value in several):
        return client.compute(values, **how)
    without, held_rows = with_rows_apart(client, several)
    futures: list[Future] = client.compute(without, **how)
    if held_rows is not None:
        held_rows.keep(futures)
    return futures if several is values else futures[0]


def with_rows_apart(client: Client, values: Sequence[Delayed]) -> tuple[list[Delayed], HeldRows | None]:
    """Return the same values whose tasks open rows from this process, for as long as the second one is there.

    Values of which the graph holds few rows, or none, come as they are.
    """
    separated = apart(values)
    if separated is None or client.status != "running":  # Dask refuses a client that is not
        return list(values), None
    held_rows = HeldRows(client, separated.rows)
    return separated.delayed(_opener(held_rows.ticket)), held_rows


def preferring(wanted: Sequence[str], present: Collection[str]) -> dict[str, Any]:
    """Return Dask's options for a task of some Dask workers, which others may do when these are gone.

    A task for any of them has no options. Where all are gone at once, the scheduler leaves a task with names of
    theirs waiting for ever, though others have come in their place
    (``SchedulerState.bulk_schedule_unrunnable_after_adding_worker``).

    Parameters
    ----------
    wanted
        Addresses of Dask workers.
    present
        Those of all.
    """
    if set(wanted) >= set(present):
        return {}
    return {"workers": list(wanted), "allow_other_workers": True}


def computed(values: Sequence[Delayed]) -> tuple[Any, ...]:
    """Compute delayed values as ``dask.compute`` does, with the default client as :func:`submitted` has it."""
    client = _default_client()
    if client is None:
        return dask.compute(*values)
    with thread_is_free():  # gather() keeps the thread of a task, unlike dask.compute
        return tuple(client.gather(submitted(client, list(values))))


def persisted(values: Sequence[Delayed]) -> tuple[Delayed, ...]:
    """Persist delayed values as ``dask.persist`` does, with the default client as :func:`submitted` has it."""
    client = _default_client()
    if client is None:
        return dask.persist(*values)
    futures = submitted(client, list(values))
    return tuple(Delayed(future.key, {future.key: future}) for future in futures)


def _default_client() -> Client | None:
    """Return the client that ``dask.compute`` takes here, if it takes one."""
    client = getattr(get_scheduler(), "__self__", None)
    return client if isinstance(client, Client) else None


def _opener(ticket: Ticket) -> Open:
    """Return what becomes of tasks that held rows; the scheduler reads it, and may have no dask-train."""
    plain = tuple(ticket)

    def rows(pickled: bytes, needs: Sequence[Any], *values: Any) -> Any:  # travels by value: it is no name of a module
        from dask_train.cluster.client_rows import open_rows

        return open_rows(plain, pickled, needs, values)

    return rows
