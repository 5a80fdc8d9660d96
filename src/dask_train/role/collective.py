"""What a session does together with the other training roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_train.collectives.checked import CheckedCollectives
from dask_train.collectives.kinds import taken
from dask_train.collectives.reductions import Reduction
from dask_train.input_errors import raises_at_the_call
from dask_train.role.context import Link
from dask_train.role.meeting import Meeting


class Collective:
    """The part of a :class:`~dask_train.role.session.Session` that training roles use together."""

    _link: Link
    _meeting: Meeting

    @raises_at_the_call
    def all_reduce(self, arrays: Any, op: str = "sum") -> Any:
        """Combine arrays over all training roles; every one of them makes the same call.

        Parameters
        ----------
        arrays
            A NumPy array, a tensor of torch, TensorFlow or JAX, a number, or a list or tuple of these, of the same
            dtypes and shapes on all ranks. Of numbers; maximum and minimum of booleans as well, not of complex numbers.
        op
            ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. NaN makes NaN of all of them.

        Returns
        -------
        array, or list or tuple of them
            New ones of the same kinds, the same on all ranks to the last bit. They keep the dtype, but that a mean of
            integers is float64. A torch tensor is detached, and lies on the device of the one that was passed.

        Raises
        ------
        TypeError
            They are no arrays, or a dtype has no such reduction.
        ValueError
            This role does not train; another rank has made another call, or has returned.
        OverflowError
            A sum of integers of less than 64 bits is larger than they hold. One of 64 bits wraps around then, as in
            NumPy.
        StalledError
            Another rank did not come within ``train.progress.timeout`` (120 s).

        Notes
        -----
        The roles that take part: the chief and all workers; where a run has neither, all roles but parameter servers.
        Their number in the group is :attr:`world_rank`. The group is made with the first call; from then on the loss of
        one role is the loss of all, which start again as the next attempt, or end the run, as ``train(recovery=...)``
        says. Within a host arrays go through shared memory, between hosts around a ring, under the cluster's TLS.
        """
        reduction = Reduction(op)
        return self._together("all_reduce()", arrays, lambda group, values: group.all_reduce(values, reduction))

    @raises_at_the_call
    def broadcast(self, arrays: Any, root: int = 0) -> Any:
        """Give the arrays of one rank to all training roles; every one of them makes the same call.

        Parameters
        ----------
        arrays
            As :meth:`all_reduce` takes them, also text of a fixed length, dates and times. Those of other ranks tell
            dtypes and shapes only.
        root
            Rank whose arrays all get, by :attr:`world_rank`. Default: 0.

        Returns
        -------
        array, or list or tuple of them
            New ones of the same kinds.

        Raises
        ------
        TypeError, ValueError, StalledError
            As of :meth:`all_reduce`; there is no such rank.
        """
        return self._together("broadcast()", arrays, lambda group, values: group.broadcast(values, root))

    @raises_at_the_call
    def all_gather(self, rows: Any) -> Any:
        """Put the rows of all training roles one after the other; every one of them makes the same call.

        Parameters
        ----------
        rows
            Arrays as :meth:`broadcast` takes them. Rows lie along the first axis; each rank may have another number of
            them, or none.

        Returns
        -------
        array, or list or tuple of them
            New ones of the same kinds: ``(rows of all ranks, *row_shape)``, in the order of :attr:`world_rank`.

        Raises
        ------
        TypeError, ValueError, StalledError
            As of :meth:`all_reduce`; an array has no rows.
        """
        return self._together("all_gather()", rows, CheckedCollectives.all_gather)

    def barrier(self) -> None:
        """Wait until all training roles have come here.

        Raises
        ------
        ValueError, StalledError
            As of :meth:`all_reduce`.
        """
        with self._waits("barrier()") as group:
            group.barrier()

    def _together(self, name: str, arrays: Any, do: Callable[[CheckedCollectives, list[np.ndarray]], Any]) -> Any:
        converted = taken(name, arrays)
        with self._waits(name) as group:
            return converted.given_back(do(group, converted.arrays))

    @contextmanager
    def _waits(self, name: str) -> Iterator[CheckedCollectives]:
        """To wait for others is no progress; that all have come is."""
        self._link.note(f"in {name}, waiting for the other ranks")
        yield self._meeting.group()
        self._link.moved(f"past {name}")
