"""How a source's partitions become segments: the functions that travel to the Dask workers, and batches' form."""

from __future__ import annotations

from functools import partial

from dask_train.cluster.by_value import ByValue
from dask_train.cluster.peer import Peer
from dask_train.cluster.submitted import submitted
from dask_train.collections import partition
from dask_train.collections.source import Source
from dask_train.config import memory_limit
from dask_train.data.columns import Column, Columns
from dask_train.errors import DataError
from dask_train.worker import finishing

PART = ByValue(partition.part, partition)
FINISH_COUNT = ByValue(finishing.count, finishing)


def finish_segment() -> ByValue:
    """Make a segment of a partition's arrays, within the memory that ``dask.config`` allows now."""
    return ByValue(partial(finishing.segment, memory_limit()), finishing)


class BatchForm:
    """Whether a data set's batches are arrays, tuples or dicts; for some sources only a partition can tell."""

    def __init__(self, peer: Peer, source: Source) -> None:
        self._peer = peer
        self._names, self._is_tuple = source.names, source.is_tuple
        self._columns = source.columns or ()  # those of files say how they are decoded
        delayed = source.delayed_form(PART)
        self._future = None if delayed is None else submitted(peer.dask_end, delayed)

    async def schema(self, columns: tuple[Column, ...]) -> Columns:
        """Return the schema with these columns, once it is known.

        Raises
        ------
        DataError
            The partition can't be computed.
        """
        if self._future is not None:
            try:
                self._names, self._is_tuple = await self._future
            except Exception as error:
                raise DataError(
                    f"A partition can't be computed: {type(error).__name__}: {str(error).rstrip('.')}."
                ) from error
            self._future = None
        return self.known(columns)

    async def cancel(self) -> None:
        """Let Dask forget what it was asked, if a run ends before the answer."""
        if self._future is not None:
            await self._peer.cancel([self._future])
            self._future = None

    def known(self, columns: tuple[Column, ...]) -> Columns:
        """Return the schema with these columns, as far as it is known."""
        known = Columns(columns=self._columns, names=self._names, is_tuple=self._is_tuple)
        return known.with_rows(columns)
