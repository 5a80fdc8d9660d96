"""What every kind of data can say and do: the rows of one data set, as partitions on Dask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask_train.data.columns import Column


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """One data set, before anything of it is computed.

    Attributes
    ----------
    names
        The columns' names where batches are dicts.
    is_tuple
        Whether batches are tuples; else they are dicts, or one bare array.
    num_rows
        Rows in all, where they are known without computing.
    nbytes
        Bytes of all rows as arrays, where they are known without computing.
    lengths
        Rows of each partition, where they are known without computing.
    columns
        Where dtypes and row shapes are known without computing; of files, also how they are decoded.
    num_listed
        Rows before those are left out that can't be decoded. None: none are left out.
    """

    names: tuple[str, ...] | None
    is_tuple: bool
    num_rows: int | None = None
    nbytes: int | None = None
    lengths: tuple[int, ...] | None = None
    columns: tuple[Column, ...] | None = None
    num_listed: int | None = None

    @property
    @abstractmethod
    def persisted_nbytes(self) -> int | None:
        """Bytes of the user's own collection that lie in Dask's memory already; None: some do, unknown how many."""

    @abstractmethod
    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        """Return one delayed result a partition, in order: what ``finish`` makes of its columns.

        Parameters
        ----------
        part
            :func:`dask_train.collections.partition.part`, as it travels.
        finish
            Given a list of C-contiguous arrays of numbers, or CSR matrices of sparse columns, one a column, each
            ``(rows, *row_shape)``; picklable. It runs in the same task as ``part``, and must not write into what it is
            given, which may be the user's own memory. A partition without rows may come as ``(0,)`` whatever its row
            shape and dtype are elsewhere.

        Returns
        -------
        list of dask.delayed.Delayed
            Never pure, so two runs over the same data share nothing that has side effects.

        Notes
        -----
        What can only be seen in the rows themselves is a ValueError or TypeError of the task, which names the
        partition, and the column where there is one.
        """

    def snapshot(self) -> Source:
        """Return the same rows as they are now, whatever is written into NumPy arrays that the user has passed."""
        return self

    def delayed_for_all(self, part: Callable[..., Any]) -> list[Any]:
        """Return delayed results that the tasks of all partitions take; where nobody keeps them, each computes them."""
        _ = part
        return []

    def delayed_form(self, part: Callable[..., Any]) -> Any | None:
        """``(names, is_tuple)`` as one delayed result, where only the first partition can tell them; else None."""
        _ = part
        return None


class OwnRows(ABC):
    """What users pass as data that is neither an array nor a frame, and makes Dask collections of itself.

    Attributes
    ----------
    classes
        Names of the classes that labels number; None if they number none.
    """

    classes: tuple[str, ...] | None

    @abstractmethod
    def to_dask(self) -> Any:
        """Return the rows as a Dask array, or a tuple of them; nothing is computed."""

    @abstractmethod
    def source(self) -> Source:
        """Return the rows for roles, which may make batches of them in another way than Dask's tasks do."""

    @abstractmethod
    def not_augmented(self) -> OwnRows:
        """Return the same rows, as they are validated on."""
