"""The partitions that a Dask worker's role processes map: opened where they lie, or brought from other hosts."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from distributed.comm import get_address_host

from dask_train.data.borrowing import borrow, lock
from dask_train.data.columns import Column, check_same_partition, plain
from dask_train.data.rows import HeldPartitions, held_by
from dask_train.data.segment import Segment, SegmentPlace
from dask_train.data.table import Table
from dask_train.errors import DataError, StalledError
from dask_train.worker import offers

# Between two looks for partitions that are not where the scheduler says, as they were moved meanwhile; nothing tells.
LOOK_AGAIN_S = 0.1
# One partition, or an answer, from another Dask worker; then it is asked for anew. A partition gets the time of its
# bytes at SLOW_BYTES_S besides, which is a quarter (FETCHES) of 64 Mbit/s, and twice as long each time that it is late:
# texts and sparse rows have more bytes than is known here.
FETCH_S = 30.0
SLOW_BYTES_S = 2e6
# How often the scheduler is asked meanwhile whether that Dask worker still has it: connecting to one that is gone takes
# Dask half a minute.
STILL_THERE_S = 1.0
# Partitions that come from other hosts at the same time.
FETCHES = 4


class Neighbours(Protocol):
    """How a Dask worker reaches results and other Dask workers; awaited on the agent's event loop."""

    address: str

    async def where(self, keys: list[Any], wait_s: float = 0.0) -> dict[str, Any]:
        """Ask the scheduler where results lie: ``where``, pairs of a key and addresses, and ``lost`` keys.

        While none of them lies anywhere, or is lost, it takes its time with the answer, at most ``wait_s`` seconds.
        """

    async def fetch(self, key: Any, addresses: list[str]) -> Any:
        """Return a result: the very object where it lies here, else a copy."""

    async def ask(self, address: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function of :mod:`~dask_train.worker.offers` says on a Dask worker."""


class Holding:
    """Partitions of one data set, mapped by descriptors until it is closed.

    Parameters
    ----------
    table
        The data set.
    keys
        The segments' keys by partition number; those that may be asked for.
    around
        The way to other Dask workers.
    where
        The addresses of the Dask workers that hold each, as the driver has asked; the scheduler is asked again only
        about those that are not there, or of which nothing is known.
    is_near
        Whether a Dask worker's address seems to be of this host; whether it has this one's host where it is None.

    Attributes
    ----------
    held, descriptors
        What :class:`~dask_train.data.rows.Rows` takes; the descriptors are this object's.
    """

    def __init__(
        self,
        table: Table,
        keys: Mapping[int, Any],
        around: Neighbours,
        where: Mapping[Any, Sequence[str]] | None = None,
        is_near: Callable[[str], bool] | None = None,
    ) -> None:
        self._table, self._keys, self._around = table, keys, around
        self._columns = plain(table.schema.columns)
        self._seems_near = is_near or self._has_my_host
        self._files: list[int] = []
        self._file_of_pool: dict[int, int] = {}  # by its inode: thousands of partitions take one descriptor
        self._found: dict[int, tuple[int, SegmentPlace]] = {}
        self._copies: list[Segment] = []
        self._foreign: set[str] = set()
        self._num_late: Counter[Any] = Counter()  # how often a partition did not come in time
        self._where: dict[Any, list[str]] = {key: list(addresses) for key, addresses in (where or {}).items()}

    @property
    def held(self) -> HeldPartitions:
        """Return the partitions that can be mapped, and where they lie."""
        pieces = ((number, file, place) for number, (file, place) in self._found.items())
        return held_by(pieces, len(self._table.schema.columns))

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the pools in which the data lies."""
        return self._files

    async def hold(
        self, partitions: Iterable[int], progressed: Callable[[], None], data_timeout_s: float, *, copies: bool = True
    ) -> None:
        """Open these partitions, waiting for those that Dask is computing again.

        Parameters
        ----------
        partitions
            Their numbers; those without rows are left out.
        progressed
            Called whenever some have come.
        data_timeout_s
            Longest time without a new partition, in seconds.
        copies
            Whether those that lie on other hosts are copied. If not, they are left out: :meth:`rows` brings their rows.

        Raises
        ------
        DataError
            A partition can't be had any more, or has other rows or columns than the table says.
        StalledError
            None came in time.
        """
        missing = {self._keys[number]: number for number in partitions if self._table.lengths[number]}
        total = len(missing)
        loop = asyncio.get_running_loop()
        last = loop.time()
        while missing:
            before = len(missing)
            by_address = await self._holders(list(missing), last + data_timeout_s - loop.time())
            near = {address: keys for address, keys in by_address.items() if self._is_near(address)}
            for address, keys in near.items():
                await self._open(address, keys, missing)
            far = [key for address, keys in by_address.items() if address not in near for key in keys]
            far += [key for address, keys in near.items() if address in self._foreign for key in keys]
            far = [key for key in far if key in missing]
            if copies:
                await self._bring(far, missing, progressed)
            else:
                for key in far:
                    del missing[key]
            for key in missing:  # it has moved, is lost, or is being computed again
                self._where.pop(key, None)
            if len(missing) < before:
                last = loop.time()
                progressed()
            elif loop.time() - last > data_timeout_s:
                raise StalledError(f"{len(missing)} of {total} partitions did not come within {data_timeout_s:g} s.")
            elif by_address:
                await asyncio.sleep(LOOK_AGAIN_S)

    def _is_near(self, address: str) -> bool:
        """Return whether that Dask worker seems to be on this host."""
        return address not in self._foreign and self._seems_near(address)

    def _has_my_host(self, address: str) -> bool:
        return address == self._around.address or get_address_host(address) == get_address_host(self._around.address)

    async def _holders(self, keys: list[Any], wait_s: float) -> dict[str, list[Any]]:
        """Return which Dask worker each of them can be had from: this one, one that is near, or any."""
        await self._ask_where(keys, wait_s)
        by_address: dict[str, list[Any]] = {}
        for key in keys:
            if addresses := self._where.get(key):
                best = min(addresses, key=lambda address: (address != self._around.address, not self._is_near(address)))
                by_address.setdefault(best, []).append(key)
        return by_address

    async def _ask_where(self, keys: list[Any], wait_s: float) -> None:
        """Ask the scheduler, where it is not known; where nothing is known of any, as soon as it is."""
        unknown = [key for key in keys if not self._where.get(key)]
        if not unknown:
            return
        wait_s = min(STILL_THERE_S, wait_s) if len(unknown) == len(keys) else 0.0
        answer = await self._around.where(unknown, max(0.0, wait_s))
        if answer["lost"]:
            number = next(number for number, key in self._keys.items() if key == answer["lost"][0])
            raise DataError(
                f"Partition {number} of {len(self._table.lengths)} was released, or can't be computed again.",
                "It was computed from data that is no longer there, or somebody released it.",
                "Keep what it is computed from, or publish the data set.",
            )
        self._where.update((key, list(addresses)) for key, addresses in answer["where"])

    async def _open(self, address: str, keys: list[Any], missing: dict[Any, int]) -> None:
        """Map what lies in the pool of a Dask worker of this host; what has moved meanwhile stays missing."""
        places = {key: offer.place for key, offer in (await self._offers(address, keys)).items()}
        if not places:
            return
        files: dict[int, int] = {}
        for inode in {place.inode for place in places.values()}:  # its own pool, and memory of others that it has lent
            file = self._borrowed([place for place in places.values() if place.inode == inode])
            if file is None:
                self._foreign.add(address)
                return
            files[inode] = file
        for key, (place, num_rows, columns) in (await self._offers(address, list(places))).items():
            if place == places[key]:
                self._check(missing[key], num_rows, columns)
                self._found[missing.pop(key)] = (files[place.inode], place)

    async def _offers(self, address: str, keys: list[Any]) -> dict[Any, offers.SegmentOffer]:
        with suppress(OSError, TimeoutError):  # it is gone; the scheduler knows where to find them next
            asking = self._around.ask(address, offers.places, keys)
            found: dict[Any, offers.SegmentOffer] = await self._while_there(keys[0], [address], asking)
            return found
        return {}

    def _check(self, number: int, num_rows: int, columns: tuple[Column, ...]) -> None:
        """Check that a partition is what the table says: readers take its rows by where these would lie."""
        known = int(self._table.lengths[number]), self._columns
        check_same_partition(str(len(self._table.lengths)), number, known, (num_rows, columns))

    async def _while_there(
        self, key: Any, addresses: list[str], work: Coroutine[Any, Any, Any], limit_s: float | None = None
    ) -> Any:
        """Return what Dask workers that have a result answer.

        Raises
        ------
        TimeoutError
            They have it no more, as the scheduler says, or did not answer within ``limit_s``, default :data:`FETCH_S`.
        """
        asking = asyncio.ensure_future(work)
        try:
            async with asyncio.timeout(FETCH_S if limit_s is None else limit_s):
                while not (await asyncio.wait([asking], timeout=STILL_THERE_S))[0]:
                    where = dict((await self._around.where([key]))["where"])
                    if not set(where.get(key, ())) & set(addresses):
                        raise TimeoutError
            return asking.result()
        finally:
            asking.cancel()

    async def _bring(self, keys: list[Any], missing: dict[Any, int], progressed: Callable[[], None]) -> None:
        """Copy partitions from other hosts into this process's pool; if one fails, the others are cancelled."""
        limit = asyncio.Semaphore(FETCHES)

        async def one(key: Any) -> None:
            async with limit:
                try:
                    fetching = self._around.fetch(key, self._where[key])
                    segment = await self._while_there(key, self._where[key], fetching, self._limit_s(key, missing[key]))
                except TimeoutError:
                    self._num_late[key] += 1
                    return
                except (DataError, OSError):
                    return
            file = self._borrowed([segment.place])
            if file is None:
                raise DataError("A Dask worker can't open its own shared memory through /proc.")
            self._check(missing[key], segment.num_rows, segment.columns)
            self._copies.append(segment)
            self._found[missing.pop(key)] = (file, segment.place)
            progressed()

        coming = [asyncio.ensure_future(one(key)) for key in keys]
        try:
            await asyncio.gather(*coming)
        finally:
            for fetch in coming:
                fetch.cancel()
            await asyncio.gather(*coming, return_exceptions=True)

    def _limit_s(self, key: Any, number: int) -> float:
        """Return how long a partition may take from another host."""
        num_bytes = int(self._table.lengths[number]) * self._table.schema.row_bytes
        return float((FETCH_S + num_bytes / SLOW_BYTES_S) * 2 ** self._num_late[key])

    def _borrowed(self, places: list[SegmentPlace]) -> int | None:
        """Return which of the files segments of one pool lie in, locked; None if it can't be opened."""
        inode = places[0].inode
        if inode in self._file_of_pool:
            lock(self._files[self._file_of_pool[inode]], places)
        elif (descriptor := borrow(places)) is None:
            return None
        else:
            self._file_of_pool[inode] = len(self._files)
            self._files.append(descriptor)
        return self._file_of_pool[inode]

    async def rows(self, partition: np.ndarray, row: np.ndarray, data_timeout_s: float) -> list[np.ndarray]:
        """Return rows that are not held here, from wherever they lie.

        Returns
        -------
        list of numpy.ndarray
            ``(k, *row_shape)`` for each column, in the order asked for.

        Raises
        ------
        DataError
            They can't be had any more, or their partition has other rows or columns than the table says.
        StalledError
            They did not come in time.
        """
        columns = [column.empty(len(row)) for column in self._table.schema.columns]
        number_of = {self._keys[number]: number for number in np.unique(partition).tolist()}
        wanted = {key: np.flatnonzero(partition == number) for key, number in number_of.items()}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + data_timeout_s
        while wanted:
            by_address: dict[str, list[Any]] = {}
            await self._ask_where(list(wanted), deadline - loop.time())
            for key in wanted:
                if addresses := self._where.get(key):
                    by_address.setdefault(addresses[0], []).append(key)
            answers = await asyncio.gather(
                *(
                    self._rows_at(
                        address,
                        keys,
                        [row[wanted[key]] for key in keys],
                        [int(self._table.lengths[number_of[key]]) for key in keys],
                    )
                    for address, keys in by_address.items()
                )
            )
            for keys, answer in zip(by_address.values(), answers, strict=True):
                for number, key in enumerate(keys):
                    if answer is None:
                        self._where.pop(key, None)
                        continue
                    positions, arrays = wanted.pop(key), answer[number]
                    if isinstance(arrays, tuple):
                        self._check(number_of[key], *arrays)
                    for column, array in zip(columns, arrays, strict=True):
                        column[positions] = array
            if wanted and loop.time() > deadline:
                raise StalledError(f"Rows of {len(wanted)} partitions did not come within {data_timeout_s:g} s.")
            if wanted and by_address:
                await asyncio.sleep(LOOK_AGAIN_S)
        return columns

    async def _rows_at(self, address: str, keys: list[Any], numbers: list[np.ndarray], lengths: list[int]) -> Any:
        """Return what :func:`~dask_train.worker.offers.rows` does; None as well if the Dask worker is gone."""
        try:
            asking = self._around.ask(address, offers.rows, keys, numbers, lengths, self._columns)
            rows = await self._while_there(keys[0], [address], asking)
        except (OSError, TimeoutError):  # it is gone, and with it all that was there
            self._where = {key: others for key, others in self._where.items() if address not in others}
            return None
        return rows

    def knows(self, partition: np.ndarray) -> np.ndarray:
        """Return of each partition, bool ``(n,)``, whether it may be asked for here."""
        return np.isin(partition, list(self._keys))

    def close(self) -> None:
        """Let go of everything; role processes that have mapped it keep their mappings."""
        for descriptor in self._files:
            os.close(descriptor)
        self._files, self._copies = [], []
        self._file_of_pool.clear()
