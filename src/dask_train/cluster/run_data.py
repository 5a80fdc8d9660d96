"""The data of a run: computed by Dask where it is, described to the driver, released with the run."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client, Future

from dask_train.cluster.extension import ByValue
from dask_train.collections import pieces
from dask_train.collections.partitions import Columns, delayed_parts
from dask_train.data.columns import Column, Layout, same_columns
from dask_train.errors import DataError


class DataSetOnDask:
    """One data set as partitions in Dask's memory; made in the user's thread, awaited on the event loop."""

    def __init__(self, client: Client, what: str, columns: Columns) -> None:
        self._client, self._what, self._columns = client, what, columns
        parts = delayed_parts(columns, ByValue(pieces.part, pieces))
        self._futures: list[Future] = client.compute(parts, sync=False)
        describe = ByValue(pieces.describe, pieces)
        self._described: list[Future] = client.map(describe, self._futures, pure=False)
        self.layout = b""
        self.num_rows = 0

    @property
    def keys(self) -> list[Any]:
        """The keys of the partitions, in order."""
        return [future.key for future in self._futures]

    async def described(self, progressed: Callable[[], None]) -> None:
        """Wait until every partition is computed, and lay out the rows.

        Raises
        ------
        DataError
            A partition can't be computed, or two of them differ.
        """
        found = await asyncio.gather(*(self._one(future, progressed) for future in self._described))
        kinds = [tuple(Column(dtype=dtype, row_shape=tuple(shape)) for dtype, shape in specs) for _, specs in found]
        try:
            columns = same_columns(kinds)
        except ValueError as error:
            raise DataError(f"{self._what}: {error}.") from error
        layout = Layout(
            columns=columns,
            names=self._columns.names,
            is_tuple=self._columns.is_tuple,
            lengths=tuple(length for length, _ in found),
        )
        if not layout.num_rows:
            raise DataError(f"{self._what} has no rows.")
        self.layout = pickle.dumps(layout)
        self.num_rows = layout.num_rows

    async def _one(self, future: Future, progressed: Callable[[], None]) -> Any:
        try:
            answer = await future
        except asyncio.CancelledError:
            if future.cancelled():
                raise DataError(f"A partition of {self._what} was cancelled or released.") from None
            raise
        except Exception as error:
            raise DataError(
                f"A partition of {self._what} can't be computed: {type(error).__name__}: {error}.",
                change="Mend what computes it: its traceback is the cause of this error.",
            ) from error
        progressed()
        return answer

    async def cancel(self) -> None:
        """Let Dask stop computing it, and forget it."""
        await self._client._cancel([*self._futures, *self._described])
        self._futures, self._described = [], []


class RunData:
    """The data sets of a run, by role."""

    def __init__(self, client: Client, data: Mapping[str, Columns]) -> None:
        self.by_role = {role: DataSetOnDask(client, f"data[{role!r}]", columns) for role, columns in data.items()}
        self._opened: dict[str, asyncio.Task[DataSetOnDask]] = {}  # published data sets that roles have asked for
        self._client = client

    async def described(self, progressed: Callable[[], None]) -> None:
        """Wait until all are computed; see :meth:`DataSetOnDask.described`."""
        await asyncio.gather(*(data.described(progressed) for data in self.by_role.values()))

    async def open(self, name: str, check: Callable[[str, Any], Columns]) -> DataSetOnDask:
        """A collection that was published under that name.

        Raises
        ------
        DataError
            There is none, or it is no data set.
        """
        if name not in self._opened:  # one task for all roles that ask, perhaps at the same time
            self._opened[name] = asyncio.ensure_future(self._open(name, check))
        return await asyncio.shield(self._opened[name])

    async def _open(self, name: str, check: Callable[[str, Any], Columns]) -> DataSetOnDask:
        try:
            published = await self._client.get_dataset(name)
        except KeyError:
            known = ", ".join(map(str, await self._client.list_datasets())) or "none"
            raise DataError(f"No data set {name!r} is published; there are {known}.") from None
        try:
            columns = check(f"data set {name!r}", published)
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error
        data = DataSetOnDask(self._client, f"data set {name!r}", columns)
        await data.described(lambda: None)
        return data

    def number_of(self, name: str) -> int:
        """The number under which the ledger knows a published data set, from 1."""
        return 1 + list(self._opened).index(name)

    def num_rows(self) -> dict[tuple[str, int], int]:
        """Rows of each data set, by role and number; the role's own is 0, a published one has no role in front."""
        rows = {(role, 0): data.num_rows for role, data in self.by_role.items()}
        for number, opening in enumerate(self._opened.values(), 1):
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                rows["", number] = opening.result().num_rows
        return rows

    async def cancel(self) -> None:
        """Stop the work of all of them."""
        opened = await asyncio.gather(*self._opened.values(), return_exceptions=True)
        for data in (*self.by_role.values(), *(data for data in opened if isinstance(data, DataSetOnDask))):
            await data.cancel()
