"""Where partitions are had from: mapped where they lie near, copied from afar, waited for while they are computed."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_train.data.pool import Pool
from dask_train.data.rows import Rows
from dask_train.data.segment import Segment
from dask_train.errors import DataError, StalledError
from dask_train.worker import holding as holding_module
from dask_train.worker.holding import Holding

OWN, NEAR, FAR, FARTHER = "tcp://10.0.0.1:1", "tcp://10.0.0.1:2", "tcp://10.0.0.2:1", "tcp://10.0.0.3:1"
PARTS = [
    [
        np.arange(n) + 10 * number,
        np.full((n, 3), number, "f4"),
        np.array(["", "gr\u00fcn", b"\xff", "x" * 50][:n] + ["y"] * (n - 4), object),
    ]
    for number, n in enumerate((4, 0, 3, 5))
]
KEYS = {number: f"part-{number}" for number in range(len(PARTS))}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(holding_module, "LOOK_AGAIN_S", 0.001)


class Cluster:
    """Dask workers that hold segments, as one of them sees the others."""

    address = OWN

    def __init__(self) -> None:
        self.data: dict[str, dict[str, Segment]] = {}
        self.lost: list[str] = []
        self.waits: list[float] = []
        self.fetched: list[tuple[str, list[str]]] = []
        self.asked: list[tuple[str, str, list[str]]] = []
        self.before: list[Callable[[str, Callable[..., Any]], None]] = []

    def put(self, address: str, number: int, pool: Pool) -> Segment:
        segment = Segment(PARTS[number], pool)
        self.data.setdefault(address, {})[KEYS[number]] = segment
        return segment

    async def where(self, keys: list[str], wait_s: float = 0.0) -> dict[str, Any]:
        self.waits.append(wait_s)
        while wait_s and not any(key in data for key in keys for data in (*self.data.values(), self.lost)):
            wait_s = max(0.0, wait_s - 0.001)
            await asyncio.sleep(0.001)
        pairs = [(key, [address for address, data in self.data.items() if key in data]) for key in keys]
        return {"where": pairs, "lost": [key for key in keys if key in self.lost]}

    async def fetch(self, key: str, addresses: list[str]) -> Segment:
        self.fetched.append((key, addresses))
        await asyncio.sleep(0)
        if key in self.data.get(OWN, {}):
            return self.data[OWN][key]
        for address in addresses:
            if key in self.data.get(address, {}):
                return pickle.loads(pickle.dumps(self.data[address][key]))
        raise DataError("it is not there any more")

    async def ask(self, address: str, function: Callable[..., Any], *args: Any) -> Any:
        self.asked.append((address, function.__name__, list(args[0])))
        for change in list(self.before):
            change(address, function)
        await asyncio.sleep(0)
        if address not in self.data:
            raise OSError("no such Dask worker")
        return function(*args, dask_worker=SimpleNamespace(data=self.data[address]))


@pytest.fixture
def around():
    made = Cluster()
    yield made
    made.data.clear()
    made.before.clear()


@pytest.fixture
def table(table_of):
    return table_of(PARTS)


def hold(
    table: Any, around: Cluster, numbers: list[int], *, data_timeout_s: float = 30.0, copies: bool = True
) -> Holding:
    """What a Dask worker holds after it was asked to; the caller closes it."""
    holding = Holding(table, KEYS, around)
    holding.progress = []

    async def work() -> None:
        await holding.hold(numbers, lambda: holding.progress.append(len(holding._found)), data_timeout_s, copies=copies)

    try:
        asyncio.run(work())
    except BaseException:
        holding.close()
        raise
    return holding


def check(table: Any, holding: Holding, numbers: list[int]) -> None:
    """Just these partitions can be mapped, and have their rows."""
    rows = Rows(table.schema, table.lengths, holding.held, holding.descriptors)
    assert [n for n in KEYS if rows.is_here(np.array([n]))[0] and n != 1] == sorted(numbers)
    for number in numbers:
        its = np.arange(len(PARTS[number][0]))
        out = [np.empty_like(column) for column in PARTS[number]]
        rows.take(np.full(len(its), number), its, out)
        for found, column in zip(out, PARTS[number], strict=True):
            np.testing.assert_array_equal(found, column)


@pytest.mark.parametrize(("bytes_s", "num_fetches"), [(1.0, {1}), (1e12, set(range(2, 20)))])
def test_a_partition_that_takes_long_is_waited_for_longer(pool, table, around, monkeypatch, bytes_s, num_fetches):
    monkeypatch.setattr(holding_module, "FETCH_S", 0.001)
    monkeypatch.setattr(holding_module, "SLOW_BYTES_S", bytes_s)
    around.put(FAR, 0, pool)
    fetch = around.fetch

    async def slowly(key: str, addresses: list[str]) -> Segment:
        segment = await fetch(key, addresses)
        await asyncio.sleep(0.1)
        return segment

    around.fetch = slowly
    holding = hold(table, around, [0], data_timeout_s=5.0)
    check(table, holding, [0])
    assert len(around.fetched) in num_fetches
    holding.close()


def test_what_lies_here_or_near_is_mapped_where_it_lies(own_pool, pool, table, around):
    with own_pool() as near_pool:
        for address, number, its_pool in ((OWN, 0, pool), (NEAR, 2, near_pool), (NEAR, 3, near_pool), (FAR, 2, pool)):
            around.put(address, number, its_pool)
        holding = hold(table, around, [0, 1, 2, 3])
        check(table, holding, [0, 2, 3])
        assert around.fetched == []
        assert len(holding.descriptors) == 2, "one a pool"
        assert holding.progress == [3]
        around.data.clear()  # Dask drops them
        others = [Segment([np.full(5000, 255, "u1")], near_pool) for _ in range(4)]
        check(table, holding, [0, 2, 3])
        holding.close()
        del others


def test_what_lies_far_is_copied(own_pool, pool, table, around):
    with own_pool() as far_pool:
        for number in (0, 2, 3):
            around.put(FAR, number, far_pool)
        holding = hold(table, around, [0, 2, 3])
        assert sorted(around.fetched) == [(KEYS[number], [FAR]) for number in (0, 2, 3)]
        assert len(holding.descriptors) == 1, "one for all copies"
        assert holding.progress == [1, 2, 3, 3]
        around.data.clear()
        check(table, holding, [0, 2, 3])
        assert pool.used_bytes
        holding.close()
        assert pool.used_bytes == 0, "copies go with it"


def test_without_copies_what_lies_far_is_left_out_and_what_is_computed_again_is_waited_for(
    own_pool, pool, table, around, monkeypatch
):
    with own_pool() as far_pool:
        around.put(FAR, 0, far_pool)
        around.put(OWN, 3, pool)
        monkeypatch.setattr(holding_module, "STILL_THERE_S", 0.01)
        real, waited = around.where, []

        async def where(keys, wait_s=0.0):
            if keys == [KEYS[2]] and not waited:
                waited.append(around.put(OWN, 2, pool))
                return {"where": [(KEYS[2], [])], "lost": []}
            return await real(keys, wait_s)

        around.where = where
        holding = hold(table, around, [0, 2, 3], copies=False)
        check(table, holding, [2, 3])
        assert waited
        assert not around.fetched
        rows = asyncio.run(holding.rows(np.array([0, 0]), np.array([3, 1]), 30.0))
        assert rows[0].tolist() == [3, 1]
        holding.close()
        waited.clear()
        around.data.clear()


def test_what_seems_near_but_can_not_be_opened_is_copied(own_pool, pool, table, around):
    with own_pool() as near_pool:
        for number in (0, 2):
            segment = around.put(NEAR, number, near_pool)
            segment.place = replace(segment.place, inode=segment.place.inode + 1)  # as in another container
        real = [replace(each.place, inode=near_pool.inode) for each in around.data[NEAR].values()]
        around.put(OWN, 3, pool)
        holding = hold(table, around, [0, 2, 3])
        check(table, holding, [0, 2, 3])
        assert sorted(around.fetched) == [(KEYS[number], [NEAR]) for number in (0, 2)]
        asked = [address for address, _, _ in around.asked]
        assert asked.count(NEAR) == 1, "it is tried once"
        holding.close()
        for segment, place in zip(around.data[NEAR].values(), real, strict=True):
            segment.place = place
        around.data.clear()
        del segment


def test_what_moves_between_two_looks_is_found_where_it_is_then(own_pool, pool, table, around):
    with own_pool() as near_pool:
        around.put(NEAR, 0, near_pool)
        around.put(NEAR, 2, near_pool)
        looks = 0

        def move(address: str, function: Callable[..., Any]) -> None:
            """The second look finds one partition in another place, and the other one nowhere: it has gone to FAR."""
            nonlocal looks
            looks += 1
            if looks == 2:
                kept = Segment(PARTS[3], near_pool)
                around.put(NEAR, 0, near_pool)
                around.data[FAR] = {KEYS[2]: around.data[NEAR].pop(KEYS[2])}
                around.data[NEAR]["other"] = kept

        around.before.append(move)
        holding = hold(table, around, [0, 2])
        check(table, holding, [0, 2])
        assert [key for key, _ in around.fetched] == [KEYS[2]]
        around.data.clear()
        others = [Segment([np.full(5000, 255, "u1")], near_pool) for _ in range(9)]
        check(table, holding, [0, 2])
        holding.close()
        del others


def test_what_is_here_is_taken_before_what_is_near_and_that_before_copies(own_pool, pool, table, around):
    with own_pool() as near_pool:
        for address, number, its_pool in ((FAR, 0, near_pool), (FAR, 2, near_pool), (NEAR, 0, near_pool)):
            around.put(address, number, its_pool)
        around.put(NEAR, 2, near_pool)
        around.put(OWN, 2, pool)
        holding = hold(table, around, [0, 2])
        assert around.fetched == []
        assert {(address, *keys) for address, _, keys in around.asked} == {(NEAR, KEYS[0]), (OWN, KEYS[2])}
        check(table, holding, [0, 2])
        holding.close()
        around.data.clear()


def test_looks_at_one_pool_take_one_descriptor(own_pool, pool, table, around):
    with own_pool() as near_pool:
        numbers = [0, 2, 3]

        def compute(address: str, function: Callable[..., Any]) -> None:
            """One more is there at every second question."""
            if len(around.asked) % 2 == 0 and numbers:
                around.put(NEAR, numbers.pop(), near_pool)

        around.put(NEAR, numbers.pop(), near_pool)
        around.before.append(compute)
        holding = hold(table, around, [0, 2, 3])
        assert len(holding.descriptors) == 1
        around.data.clear()
        others = [Segment([np.full(5000, 255, "u1")], near_pool) for _ in range(4)]
        check(table, holding, [0, 2, 3])
        holding.close()
        del others


def test_a_partition_that_is_computed_again_is_waited_for(own_pool, pool, table, around):
    with own_pool() as near_pool:
        around.put(OWN, 0, pool)
        holding = Holding(table, KEYS, around)

        async def work() -> None:
            holding_it = asyncio.create_task(holding.hold([0, 2], lambda: None, 30.0))
            async with asyncio.timeout(20):
                while len(around.waits) < 2:
                    await asyncio.sleep(0.001)
            assert not holding_it.done()
            around.put(NEAR, 2, near_pool)
            await holding_it

        asyncio.run(work())
        assert len(around.waits) == 2, "the scheduler itself waits until it is there"
        assert around.waits[1] > 0
        check(table, holding, [0, 2])
        holding.close()
        around.data.clear()


def test_a_dask_worker_that_is_gone_is_asked_no_further(own_pool, pool, table, around):
    with own_pool() as near_pool:
        around.put(NEAR, 0, near_pool)
        gone = iter([True, False])

        def die(address: str, function: Callable[..., Any]) -> None:
            if next(gone, False):
                raise OSError("it is gone")

        around.before.append(die)
        holding = hold(table, around, [0])
        check(table, holding, [0])
        holding.close()
        around.data.clear()


def test_a_copy_that_fails_is_made_anew(own_pool, pool, table, around, monkeypatch):
    with own_pool() as far_pool:
        around.put(FAR, 0, far_pool)
        fetch, errors = around.fetch, [DataError("not there"), OSError("gone"), TimeoutError()]

        async def failing(key: str, addresses: list[str]) -> Segment:
            if errors:
                raise errors.pop()
            return await fetch(key, addresses)

        monkeypatch.setattr(around, "fetch", failing)
        holding = hold(table, around, [0])
        check(table, holding, [0])
        holding.close()
        around.data.clear()


def test_where_one_copy_can_not_be_opened_no_other_comes_afterwards(own_pool, table, around, monkeypatch):
    with own_pool() as other_pool:
        for number in (0, 2, 3):
            around.put(FAR, number, other_pool)
        late = asyncio.Event()
        whole = around.fetch

        async def fetch(key: str, addresses: list[str]) -> Segment:
            if key != KEYS[0]:
                await late.wait()
            return await whole(key, addresses)

        async def work() -> None:
            holding = Holding(table, KEYS, around)
            monkeypatch.setattr(holding, "_borrowed", lambda places: None)
            try:
                with pytest.raises(DataError, match="can't open its own shared memory"):
                    await holding.hold([0, 2, 3], lambda: None, 30.0)
                late.set()
                await asyncio.sleep(0)
                assert len(asyncio.all_tasks()) == 1
            finally:
                holding.close()

        around.fetch = fetch
        asyncio.run(work())
        assert [key for key, _ in around.fetched] == [KEYS[0]]
        around.data.clear()


def test_a_partition_that_is_lost(pool, table, around):
    around.put(OWN, 0, pool)
    around.lost = [KEYS[2]]
    with pytest.raises(DataError, match="Partition 2 of 4 was released, or can't be computed again"):
        hold(table, around, [0, 2])


@pytest.mark.parametrize("address", [NEAR, FAR])
@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([np.arange(2), np.zeros((2, 3), "f4"), np.array(["", "a"], object)], "had 3 rows and now has 2"),
        ([np.arange(4), np.zeros((4, 3), "f4"), np.array(["a"] * 4, object)], "had 3 rows and now has 4"),
        ([np.arange(3), np.zeros((3, 2), "f4"), np.array(["a"] * 3, object)], r"had .*\(3,\) and .* now has .*\(2,\)"),
    ],
)
def test_a_partition_that_was_computed_again_with_other_rows(own_pool, pool, table, around, address, columns, text):
    """Its rows would be taken from where those of the table would lie."""
    with own_pool() as other_pool:
        around.put(OWN, 0, pool)
        around.data[address] = {KEYS[2]: Segment(columns, other_pool)}
        with pytest.raises(DataError, match=f"Partition 2 of 4 {text}"):
            hold(table, around, [0, 2])
        with pytest.raises(DataError, match=f"Partition 2 of 4 {text}"):
            fetched(table, around, [2, 0], [1, 0])
        around.data.clear()


def test_partitions_that_do_not_come(pool, table, around):
    around.put(OWN, 0, pool)
    with pytest.raises(StalledError, match=r"2 of 3 partitions did not come within 0.01 s"):
        hold(table, around, [0, 2, 3], data_timeout_s=0.01)


def test_nothing_to_hold(table, around):
    holding = hold(table, around, [1])
    assert (holding.descriptors, len(holding.held.partition), around.asked) == ([], 0, [])
    holding.close()


def test_what_is_near_may_be_told(own_pool, pool, table, around):
    with own_pool() as far_pool:
        around.put(FAR, 0, far_pool)
        holding = Holding(table, KEYS, around, is_near=lambda address: address == FAR)
        asyncio.run(holding.hold([0], lambda: None, 30.0))
        assert around.fetched == []
        check(table, holding, [0])
        holding.close()
        around.data.clear()


def told(holding: Holding) -> Holding:
    """It must ask the scheduler nothing."""

    async def where(keys: list[str], wait_s: float = 0.0) -> dict[str, Any]:
        pytest.fail(f"asked where {keys} lie")

    holding._around.where = where
    return holding


def test_who_is_told_where_partitions_lie_does_not_ask(own_pool, pool, table, around):
    with own_pool() as near_pool, own_pool() as far_pool:
        for address, number, its_pool in ((OWN, 0, pool), (NEAR, 2, near_pool), (FAR, 3, far_pool)):
            around.put(address, number, its_pool)
        where = {KEYS[0]: [FAR, OWN], KEYS[2]: (NEAR,), KEYS[3]: [FAR]}
        holding = told(Holding(table, KEYS, around, where))
        asyncio.run(holding.hold([0, 1, 2, 3], lambda: None, 30.0))
        check(table, holding, [0, 2, 3])
        assert [key for key, _ in around.fetched] == [KEYS[3]]
        holding.close()
        holding = told(Holding(table, KEYS, around, where))
        x, _, _ = asyncio.run(holding.rows(np.array([3, 2]), np.array([1, 0]), 30.0))
        assert x.tolist() == [31, 20]
        around.data.clear()


def test_what_lies_elsewhere_than_was_told_is_asked_for_again(own_pool, pool, table, around):
    with own_pool() as near_pool:
        for address, number, its_pool in ((OWN, 0, pool), (NEAR, 2, near_pool)):
            around.put(address, number, its_pool)
        where, asked, real = {KEYS[0]: [OWN], KEYS[2]: [FAR], KEYS[3]: []}, [], around.where

        async def counted(keys: list[str], wait_s: float = 0.0) -> dict[str, Any]:
            asked.append(sorted(keys))
            if KEYS[3] not in around.data[OWN]:
                around.put(OWN, 3, pool)
            return await real(keys, wait_s)

        around.where = counted
        holding = Holding(table, KEYS, around, where)
        asyncio.run(holding.hold([0, 2, 3], lambda: None, 30.0))
        check(table, holding, [0, 2, 3])
        assert asked == [[KEYS[3]], [KEYS[2]]], "of what is not told, and of what has moved"
        holding.close()
        around.data.clear()


# Single rows


def fetched(
    table: Any, around: Cluster, partition: list[int], row: list[int], data_timeout_s: float = 30.0
) -> list[Any]:
    holding = Holding(table, KEYS, around)
    return asyncio.run(holding.rows(np.array(partition, np.int64), np.array(row, np.int64), data_timeout_s))


def test_rows_come_in_the_order_they_were_asked_for(own_pool, table, around):
    with own_pool() as far_pool:
        for address, number in ((FAR, 0), (FAR, 2), (FARTHER, 3)):
            around.put(address, number, far_pool)
        partition, row = [3, 0, 2, 0, 3, 3], [4, 1, 0, 1, 0, 2]
        x, y, text = fetched(table, around, partition, row)
        assert x.tolist() == [PARTS[p][0][r] for p, r in zip(partition, row, strict=True)]
        np.testing.assert_array_equal(y, [PARTS[p][1][r] for p, r in zip(partition, row, strict=True)])
        assert text.tolist() == [PARTS[p][2][r] for p, r in zip(partition, row, strict=True)]
        assert sorted(around.asked) == [(FAR, "rows", [KEYS[0], KEYS[2]]), (FARTHER, "rows", [KEYS[3]])]
        empty, wide, _ = fetched(table, around, [], [])
        assert (empty.shape, wide.shape, empty.dtype, wide.dtype) == ((0,), (0, 3), np.int64, np.float32)
        around.data.clear()


def test_rows_are_found_where_they_have_moved_to(own_pool, table, around):
    with own_pool() as far_pool:
        around.put(FAR, 0, far_pool)
        around.put(FAR, 2, far_pool)
        moves = iter(["move", "die"])

        def change(address: str, function: Callable[..., Any]) -> None:
            move = next(moves, None)
            if move == "move":
                around.data[FARTHER] = {KEYS[2]: around.data[FAR].pop(KEYS[2])}
            elif move == "die":
                raise OSError("it is gone")

        around.before.append(change)
        x, _, text = fetched(table, around, [0, 2, 0], [1, 2, 3])
        assert (x.tolist(), text.tolist()) == ([1, 22, 3], ["grün", b"\xff", "x" * 50])
        around.data.clear()


def test_rows_that_can_not_be_had(own_pool, table, around):
    with own_pool() as far_pool:
        around.put(FAR, 0, far_pool)
        with pytest.raises(StalledError, match=r"Rows of 1 partitions did not come within 0.01 s"):
            fetched(table, around, [0, 2], [0, 0], data_timeout_s=0.01)
        around.lost = [KEYS[3]]
        with pytest.raises(DataError, match="Partition 3 of 4 was released"):
            fetched(table, around, [3], [0])
        around.data.clear()


def test_which_partitions_it_knows(table, around):
    holding = Holding(table, {2: "a", 3: "b"}, around)
    assert holding.knows(np.array([0, 3, 2, 1, 3])).tolist() == [False, True, True, False, True]


def test_descriptors_are_closed(own_pool, pool, table, around):
    around.put(OWN, 0, pool)
    before = len(os.listdir("/proc/self/fd"))
    holding = hold(table, around, [0])
    assert len(os.listdir("/proc/self/fd")) == before + 1
    holding.close()
    holding.close()
    assert len(os.listdir("/proc/self/fd")) == before
    around.data.clear()
