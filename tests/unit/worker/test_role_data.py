"""The data of a run's roles on one Dask worker: opened once for all that map it, let go of with who needs it."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dask_train.data.batches import Reader
from dask_train.data.buffers import Buffers
from dask_train.data.rows import Rows
from dask_train.data.segment import Segment
from dask_train.data.stream import Stream
from dask_train.errors import ClosedError, DaskTrainError, DataError
from dask_train.process.messages import DataSetPlaces, GroupComputed, Mapped
from dask_train.worker.holding import Holding
from dask_train.worker.role_data import RoleData

OWN, FAR = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"
PARTS = [[np.arange(n) + 10 * number, np.full((n, 2), number, "f4")] for number, n in enumerate((4, 3, 5, 2))]
KEYS = [f"part-{number}" for number in range(len(PARTS))]
STREAM = Stream(0, 0, 0, False, 0)
PATIENCE_S = 30.0


class Dask:
    """Two Dask workers that hold segments, as one of them reaches the scheduler and the other."""

    def __init__(self) -> None:
        self.data: dict[str, dict[str, Any]] = {OWN: {}, FAR: {}}
        self.dask_end = SimpleNamespace(address=OWN, data=self.data[OWN], rpc=self._rpc)
        self.lost: list[str] = []
        self.num_asked = 0
        self._news = asyncio.Event()

    def put(self, number: int, address: str = OWN) -> None:
        self.data[address][KEYS[number]] = Segment(PARTS[number])
        self._news.set()

    async def ask(self, handler: str, *, keys: list[str], timeout_s: float) -> dict[str, Any]:
        assert handler == "train_run_who_has"
        self.num_asked += 1
        where = self._where(keys)
        if timeout_s and not (where or set(keys) & set(self.lost)):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout_s)
            where = self._where(keys)
        await asyncio.sleep(0)  # as one that comes over a network
        return {"status": "OK", "where": where, "lost": [key for key in keys if key in self.lost]}

    def _where(self, keys: list[str]) -> list[tuple[str, list[str]]]:
        found = [(key, [address for address, held in self.data.items() if key in held]) for key in keys]
        return [pair for pair in found if pair[1]]

    def _rpc(self, address: str) -> Any:
        async def run(function: bytes, args: bytes) -> dict[str, Any]:
            await asyncio.sleep(0)
            worker = SimpleNamespace(data=self.data[address])
            try:
                return {"status": "OK", "result": pickle.loads(function)(*pickle.loads(args), dask_worker=worker)}
            except TypeError as error:
                return {"status": "error", "exception-text": repr(error)}

        return SimpleNamespace(run=run)


class Held:
    """The data of two ranks, the second of which is on another host, and Dask around them."""

    def __init__(self, table: Any) -> None:
        self.dask, self.table, self.num_progressed = Dask(), table, 0
        self.data = RoleData(self.dask, self._on_worker_loop, PATIENCE_S)  # type: ignore[arg-type]
        self.keeps_pool: Any = Segment(PARTS[0])  # whose descriptor is here from now on
        self._before = len(os.listdir("/proc/self/fd"))

    async def _on_worker_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    def progressed(self) -> None:
        self.num_progressed += 1

    @property
    def num_open(self) -> int:
        """How many pools are open for reading."""
        return len(os.listdir("/proc/self/fd")) - self._before

    def told(self, where: dict[int, str] | None = None) -> None:
        """What the data set is; where its partitions lie, as far as that is known."""
        keys = [] if self.table.window else KEYS
        holders = [[(where or {})[n]] if n in (where or {}) else [] for n in range(len(keys))]
        self.data.tell(DataSetPlaces(role="worker", number=0, table=pickle.dumps(self.table), keys=keys, where=holders))

    def hold(self, rank: int = 0) -> Coroutine[Any, Any, None]:
        return self.data.hold(0, "worker", rank, self.progressed)

    def group(self, number: int, partitions: list[int], needed_from: int = 0, rank: int = 0) -> Any:
        parts = [(each, KEYS[each], [OWN]) for each in partitions]
        computed = GroupComputed(
            question=0,
            stream=STREAM,
            group=number,
            needed_from=needed_from,
            schema=pickle.dumps(self.table.schema),
            parts=parts,
        )
        return self.data.open_group("worker", rank, computed, self.progressed)

    def rows(self, partition: list[int], row: list[int], rank: int = 0) -> Any:
        return self.data.rows(STREAM, "worker", rank, np.array(partition), np.array(row))


@pytest.fixture
def holding(pool: Any, table_of: Any) -> Callable[..., None]:
    """Runs a story with such data; all that it has opened has to be closed in the end."""

    def run(story: Callable[[Held], Coroutine[Any, Any, None]], **table: Any) -> None:
        async def whole() -> None:
            parts = table.pop("parts", PARTS)
            placed = {"owner": np.array([0, 0, 1, 1]), "host_of_rank": np.array([0, 1, 0])}
            it = Held(table_of(parts, **placed, **table))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await story(it)
            finally:
                await it.data.close()
            assert it.num_open == 0
            it.keeps_pool = None
            it.dask.data.clear()
            it.dask.dask_end.data.clear()

        asyncio.run(whole())

    return run


def here(mapped: Mapped) -> list[int]:
    """Which partitions a role process can map of what it is given."""
    rows = Rows(mapped.table.schema, mapped.table.lengths, mapped.held, list(mapped.descriptors))
    return [number for number in range(len(PARTS)) if rows.is_here(np.array([number]))[0]]


# A role's own data, and published data sets


def test_ranks_of_a_host_share_what_it_holds(holding):
    async def story(it):
        for number in range(4):
            it.dask.put(number)
        it.told()
        await asyncio.gather(it.hold(0), it.hold(2), it.hold(1))
        first, other, third = (it.data.mapped(0, "worker", rank) for rank in (0, 1, 2))
        assert (here(first), here(third), here(other)) == ([0, 1], [0, 1], [2, 3])
        assert first.descriptors == third.descriptors != other.descriptors
        assert it.num_open == 2, "one a host"
        assert it.num_progressed == 3, "each is told"
        assert it.data.mapped(0, "ps", 0) is None, "it has no data"

    holding(story)


def test_who_waits_for_shared_data_and_goes_leaves_it_to_the_others(holding):
    async def story(it):
        it.told()
        gone, waits = asyncio.ensure_future(it.hold(0)), asyncio.ensure_future(it.hold(2))
        while not it.dask.num_asked:
            await asyncio.sleep(0)
        gone.cancel()
        it.dask.put(0)
        it.dask.put(1)
        await waits
        assert here(it.data.mapped(0, "worker", 2)) == [0, 1]

    holding(story)


def test_all_that_wait_for_shared_data_are_told_as_soon_as_partitions_come(holding):
    async def story(it):
        it.told()
        told = []
        waits = [
            asyncio.ensure_future(it.data.hold(0, "worker", rank, lambda rank=rank: told.append(rank)))
            for rank in (0, 2)
        ]
        it.dask.put(0)
        while not told:
            await asyncio.sleep(0)
        assert not any(each.done() for each in waits)
        assert told == [0, 2]
        it.dask.put(1)
        await asyncio.gather(*waits)

    holding(story)


def test_what_was_not_to_be_had_may_be_when_a_role_begins_anew(holding):
    async def story(it):
        it.dask.put(0)
        it.told()
        it.dask.lost = [KEYS[1]]
        for rank in (0, 2):
            with pytest.raises(DataError, match="Partition 1 of 4 was released"):
                await it.hold(rank)
        assert it.num_open <= 1, "who begins anew takes the place of what was opened in vain"
        it.dask.lost = []
        it.dask.put(1)
        await it.hold(0)
        assert here(it.data.mapped(0, "worker", 0)) == [0, 1]

    holding(story)


def test_for_one_that_has_joined_on_another_host_nothing_is_copied_and_batches_have_its_rows(holding):
    text = np.array(["", "gr\u00fcn", "b", "x" * 50, "y"], object)
    sparse = csr_array(np.diag(np.arange(5.0)))
    columns = [np.arange(5), text, sparse]

    async def story(it):
        for number, address in enumerate((FAR, FAR, OWN, OWN)):
            it.dask.data[address][KEYS[number]] = Segment(columns)
        it.told()
        await it.hold(3)
        mapped = it.data.mapped(0, "worker", 3)
        rows = Rows(mapped.table.schema, mapped.table.lengths, mapped.held, list(mapped.descriptors))
        assert here(mapped) == []

        def fetch(partition, row):
            return asyncio.run_coroutine_threadsafe(it.rows(partition, row, rank=3), loop).result(PATIENCE_S)

        loop, reader = asyncio.get_running_loop(), Reader(fetch, Buffers(), "read-only")
        batch = await asyncio.to_thread(reader.gathered, np.array([1, 0, 2]), np.array([4, 1, 3]), rows)
        assert batch[0].tolist() == [4, 1, 3]
        assert batch[1].tolist() == ["y", "gr\u00fcn", "x" * 50]
        np.testing.assert_array_equal(batch[2], sparse.toarray()[[4, 1, 3]])

    holding(story, parts=[columns] * 4)


def test_one_that_has_joined_shares_what_others_of_the_first_host_map(holding):
    async def story(it):
        for number in range(4):
            it.dask.put(number)
        it.told()
        await it.hold(3)
        first = it.data.mapped(0, "worker", 3)
        assert here(first) == [0, 1]
        waits = asyncio.ensure_future(it.hold(0))
        await asyncio.sleep(0)
        assert it.data.mapped(0, "worker", 3).descriptors == first.descriptors, (
            "what it has opened, until it begins anew"
        )
        await waits
        assert it.num_open == 2
        await it.hold(3)
        assert it.data.mapped(0, "worker", 3).descriptors == it.data.mapped(0, "worker", 0).descriptors
        assert it.num_open == 2

    holding(story)


def test_where_partitions_lie_is_taken_from_who_told(holding):
    async def story(it):
        it.dask.put(0)
        it.dask.put(1)
        it.told({0: OWN, 1: OWN})
        it.told({0: FAR})  # another agent's word, too late
        await it.hold()
        assert it.dask.num_asked == 0

    holding(story)


def test_rows_of_other_hosts_are_brought(holding):
    async def story(it):
        for number in range(4):
            it.dask.put(number, OWN if number < 2 else FAR)
        it.told()
        await it.hold()
        x, y = await it.rows([3, 2, 3], [1, 4, 0])
        assert (x.tolist(), y[:, 0].tolist()) == ([31, 24, 30], [3, 2, 3])

    holding(story)


def test_a_dask_worker_that_has_something_else_under_a_key_is_named(holding):
    async def story(it):
        it.dask.put(0)
        it.dask.put(1)
        it.told()
        await it.hold()
        it.dask.data[FAR][KEYS[2]] = "no segment"
        with pytest.raises(DaskTrainError, match=rf"{FAR} could not tell of its segments: .* is a str and no segment"):
            await it.rows([2], [0])

    holding(story)


def test_it_is_closed_while_it_opens(holding):
    async def story(it):
        it.dask.put(0)
        it.told()
        waits = asyncio.ensure_future(it.hold())
        while not it.num_open:
            await asyncio.sleep(0)
        await it.data.close()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert it.num_open == 0

    holding(story)


def test_one_that_fails_in_a_strange_way_keeps_nothing_else_open(holding, monkeypatch):
    """As where a copy finds no memory: what that raises is no error of ours."""

    async def story(it):
        for number in range(4):
            it.dask.put(number)
        it.told()

        async def fails(*_: Any, **__: Any) -> Any:
            raise MemoryError("there is none")

        well, it.dask.ask = it.dask.ask, fails
        with pytest.raises(MemoryError):
            await it.hold(0)
        it.dask.ask = well
        await it.hold(1)
        assert it.num_open == 1
        await it.data.close()
        assert it.num_open == 0

    holding(story)


# Data that is streamed


@pytest.fixture
def streaming(holding: Callable[..., None]) -> Callable[..., None]:
    """The same of a data set that is streamed, two partitions a group, all of which are computed."""

    def run(story: Callable[[Held], Coroutine[Any, Any, None]]) -> None:
        async def begun(it: Held) -> None:
            for number in range(4):
                it.dask.put(number)
            it.told()
            await it.hold(0)
            await story(it)

        holding(begun, window=2)

    return run


def test_groups_are_open_for_as_long_as_they_are_needed(streaming):
    async def story(it):
        assert it.num_open == 0
        assert here(await it.group(0, [0, 2])) == [0], "the other one is of another host"
        assert here(await it.group(1, [1, 3])) == [1]
        assert it.num_open == 2
        await it.group(2, [0, 1], needed_from=1)
        assert it.num_open == 2
        await it.group(3, [0], needed_from=3)
        assert it.num_open == 1
        it.data.leave(STREAM, "worker", 0)
        assert it.num_open == 0

    streaming(story)


def test_ranks_have_groups_of_their_own(streaming):
    async def story(it):
        await it.group(0, [0, 1], rank=0)
        await it.group(0, [0, 1], rank=2)
        assert it.num_open == 2
        it.data.leave(STREAM, "worker", 0)
        assert (await it.rows([1], [2], rank=2))[0].tolist() == [12]
        it.data.gone("worker", 2)
        assert it.num_open == 0

    streaming(story)


def test_a_group_that_is_asked_for_again_is_open_once(streaming):
    async def story(it):
        await it.group(0, [0, 1])
        assert here(await it.group(0, [0, 1])) == [0, 1]
        assert it.num_open == 1

    streaming(story)


@pytest.mark.parametrize("ends", ["it leaves", "its process ends", "it begins anew"])
def test_a_group_that_comes_too_late_is_not_kept(streaming, ends):
    async def story(it):
        opening = asyncio.ensure_future(it.group(0, [0, 1]))
        while not it.num_open:
            await asyncio.sleep(0)
        if ends == "it leaves":
            it.data.leave(STREAM, "worker", 0)
        elif ends == "its process ends":
            it.data.gone("worker", 0)
        else:
            await it.hold(0)
            await it.group(0, [0, 1])
        with pytest.raises(ClosedError, match="worker 0 has left what it reads"):
            await opening
        assert it.num_open == (ends == "it begins anew")

    streaming(story)


def test_what_is_asked_ahead_while_it_leaves_is_refused(streaming):
    async def story(it):
        await it.group(0, [0, 2])
        it.data.leave(STREAM, "worker", 0)
        with pytest.raises(ClosedError, match="worker 0 has left what it reads"):
            await it.group(1, [1, 3])
        with pytest.raises(ClosedError, match="worker 0 has left what it reads"):
            await it.rows([2], [0])
        await it.hold(0)  # another process in its place reads the same epoch from its beginning
        assert here(await it.group(0, [0, 2])) == [0]

    streaming(story)


def test_rows_of_several_groups_come_in_the_order_they_were_asked_for(streaming):
    async def story(it):
        await it.group(0, [0, 2])
        await it.group(1, [1, 3])
        x, y = await it.rows([3, 2, 3, 2], [1, 4, 0, 0])
        assert (x.tolist(), y[:, 1].tolist()) == ([31, 24, 30, 20], [3, 2, 3, 2])

    streaming(story)


def test_rows_of_a_group_that_is_not_open_are_never_made_up(streaming):
    async def story(it):
        await it.group(0, [0, 2])
        with pytest.raises(ClosedError):
            await it.rows([2, 3], [0, 0])

    streaming(story)


def test_a_group_may_be_opened_while_rows_are_brought(streaming):
    async def story(it):
        await it.group(0, [0, 2])
        asks, asked, opened = it.data._around.ask, asyncio.Event(), asyncio.Event()

        async def asks_later(*args: Any) -> Any:
            asked.set()
            await opened.wait()
            return await asks(*args)

        it.data._around.ask = asks_later
        bringing = asyncio.ensure_future(it.rows([2, 2], [0, 1]))
        await asked.wait()
        it.data._around.ask = asks
        await it.group(1, [1, 3])
        opened.set()
        assert (await bringing)[0].tolist() == [20, 21]

    streaming(story)


def test_a_group_is_let_go_of_where_its_agent_ends_meanwhile(streaming):
    async def story(it):
        opening = asyncio.ensure_future(it.group(0, [0, 1]))
        while not it.num_open:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert it.num_open == 0
        assert not it.data._groups["worker", 0][STREAM]

    streaming(story)


@pytest.mark.parametrize("ends", ["it leaves", "its process ends", "it begins anew", "it reads on"])
@pytest.mark.parametrize("asks", ["a group", "rows"])
def test_what_is_released_once_it_has_left_is_not_taken_for_lost(streaming, monkeypatch, ends, asks):
    async def story(it):
        await it.group(0, [0, 2])

        async def fails(*_: Any, **__: Any) -> Any:
            if ends == "it leaves":
                it.data.leave(STREAM, "worker", 0)
            elif ends == "its process ends":
                it.data.gone("worker", 0)
            elif ends == "it begins anew":
                monkeypatch.undo()
                await it.hold(0)
                await it.group(0, [0, 2])
            raise DataError("Partition 2 is lost.")

        monkeypatch.setattr(Holding, "hold" if asks == "a group" else "rows", fails)
        with pytest.raises(DataError if ends == "it reads on" else ClosedError):
            await (it.group(1, [1, 3]) if asks == "a group" else it.rows([2], [0]))
        monkeypatch.undo()

    streaming(story)
