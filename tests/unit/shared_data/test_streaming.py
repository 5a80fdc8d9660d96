"""Data that is computed a group at a time: how far ranks may be apart, what is computed ahead, what is freed."""

from __future__ import annotations

import asyncio
import pickle
import time

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask.bag import from_delayed

from dask_train.collections import check_data
from dask_train.data.plan import EpochPlan
from dask_train.data.stream import Stream
from dask_train.errors import ClosedError, DataError
from dask_train.inputs.making import input_data
from dask_train.shared_data import streaming
from dask_train.shared_data.streaming import StreamOnDask, check_streaming

Y = da.arange(12, chunks=2)
FIRST = Stream(dataset=0, turn=0, epoch=0, shuffle=False, seed=0)


def source(data=Y):
    return check_data("data", data)


def nothing():
    """Somebody who is not told of progress."""


@pytest.fixture
def stream(peer, client):
    """Makes streams of two partitions a group, which ranks 0 and 1 of ``worker`` read on one host."""
    made = []

    def make(data=Y, window=2):
        made.append(StreamOnDask(peer, "data", source(data), window))
        peer.run(made[-1].described, nothing)
        address = next(iter(client.cluster.scheduler.workers))
        made[-1].table("worker", [address, address])
        return made[-1]

    yield make
    for each in made:
        peer.run(each.cancel)


def keys(told):
    _, parts = told
    return {number: key for number, key, _ in parts}


def scheduled(client, *told):
    """The partitions of groups that the scheduler still knows."""
    parts = {number: key for each in told for number, key in keys(each).items()}
    return {number for number, key in parts.items() if key in client.cluster.scheduler.tasks}


# What is asked for


@pytest.mark.parametrize(("given", "window"), [(True, streaming.WINDOW), (False, None), (1, 1), (7, 7)])
def test_how_many_partitions_make_a_group(given, window):
    assert check_streaming(given) == window


@pytest.mark.parametrize("given", [0, -1, 2.0, "8", None])
def test_what_is_no_number_of_partitions(given):
    with pytest.raises(ValueError, match=rf"streaming is {given!r}; pass True, False, or how many partitions"):
        check_streaming(given)


# How far ranks are


def going(lengths=(1, 1, 1, 1, 1, 1), window=2):
    return streaming._Going(
        lambda epoch: EpochPlan(lengths=np.array(lengths), shuffle=False, seed=0, epoch=epoch, window=window)
    )


def test_groups_are_counted_on_over_the_epochs():
    each = going()
    assert [each.place(0, 0), each.place(0, 2), each.place(1, 0), each.place(2, 1)] == [0, 2, 3, 7]
    assert [each.partitions(place).tolist() for place in (0, 2, 3, 7, 0)] == [[0, 1], [4, 5], [0, 1], [2, 3], [0, 1]]


def test_a_group_ahead_is_computed_too_if_it_has_rows_and_is_of_the_epoch():
    each = going((1, 1, 0, 0, 1, 0))
    assert each.wanted(0) == [0, 2]
    assert each.wanted(2) == [2]
    assert each.wanted(3) == [3, 5]
    assert going((1, 0, 0, 0)).wanted(0) == [0]


def test_the_slowest_rank_holds_up_the_others():
    each = going()
    each.reached(0, (0, 0))
    assert (each.may_open(1), each.may_open(2)) == (True, False)
    each.reached(1, (2, 2))
    assert not each.may_open(2)
    each.reached(0, (0, 2))
    assert each.may_open(2), "it asks for more at once, for a large batch"
    each.reached(0, (1, 1))
    assert each.may_open(2)
    each.gone(0)
    assert each.may_open(3)


def test_what_no_rank_needs_is_freed():
    each, released = going(), []
    each.computing.update({place: place for place in range(4)})
    each.reached(0, (1, 1))
    each.reached(1, (2, 3))
    each.free_behind(released.append)
    assert (released, list(each.computing)) == ([0], [1, 2, 3])
    each.gone(0)
    each.free_behind(released.append)
    assert released == [0, 1]
    each.gone(1)
    each.free_behind(released.append)
    assert (released, each.computing) == ([0, 1, 2, 3], {})


# On Dask


def test_rows_that_are_known_are_not_counted(stream):
    data = stream()
    assert (data.num_rows, data.keys, data.where) == (12, [], [])
    table = pickle.loads(data.table("worker", []))
    assert (table.lengths.tolist(), table.window) == ([2] * 6, 2)


def test_rows_that_are_not_known_are_counted_first(peer):
    data, progress = StreamOnDask(peer, "data", source([delayed(np.arange)(n) for n in (3, 0, 2)]), 2), []
    peer.run(data.described, lambda: progress.append(1))
    assert (data.num_rows, len(progress)) == (5, 3)
    assert pickle.loads(data.table("worker", ["tcp://10.0.0.1:1"])).lengths.tolist() == [3, 0, 2]
    peer.run(data.cancel)


def test_data_without_rows_and_data_that_can_not_be_counted(peer):
    cases = (([delayed(np.arange)(0)], "data has no rows"), ([delayed(len)(0)], "can't be computed: TypeError"))
    for parts, text in cases:
        data = StreamOnDask(peer, "data", source(parts), 2)
        with pytest.raises(DataError, match=text):
            peer.run(data.described, nothing)
        peer.run(data.cancel)


def test_groups_come_one_after_the_other_and_go_behind(stream, peer, client, wait_for):
    data = stream()
    first = peer.run(data.group, "worker", 0, FIRST, 0, 0)
    schema = pickle.loads(first[0])
    assert (schema.columns[0].dtype, schema.is_tuple) == ("<i8", False)
    assert sorted(keys(first)) == [0, 1]
    assert all(holders for _, _, holders in first[1])
    second = peer.run(data.group, "worker", 0, FIRST, 1, 0)
    assert sorted(keys(second)) == [2, 3]
    assert scheduled(client, first, second) == {0, 1, 2, 3}
    third = peer.run(data.group, "worker", 0, FIRST, 2, 2)
    wait_for(lambda: scheduled(client, first, second, third) == {4, 5}, "what is behind is freed")
    assert len(data.own_keys()) == 6


def test_a_rank_waits_for_one_that_is_behind_and_gets_the_same_group(stream, peer):
    data = stream()

    async def story():
        await asyncio.gather(*(data.group("worker", rank, FIRST, 0, 0) for rank in (0, 1)))
        ahead = asyncio.ensure_future(data.group("worker", 0, FIRST, 2, 2))
        behind = await data.group("worker", 1, FIRST, 1, 0)
        waits = not ahead.done()
        again = await data.group("worker", 1, FIRST, 1, 1)
        return waits, keys(behind) == keys(again), await ahead, await data.group("worker", 1, FIRST, 2, 2)

    waits, same, ahead, later = peer.run(story)
    assert waits
    assert same
    assert keys(ahead) == keys(later)


def test_one_that_has_left_waits_no_more_and_holds_nobody_up(stream, peer):
    data = stream()

    async def story():
        await asyncio.gather(*(data.group("worker", rank, FIRST, 0, 0) for rank in (0, 1)))
        ahead = asyncio.ensure_future(data.group("worker", 0, FIRST, 2, 2))
        await asyncio.sleep(0)
        data.left("worker", 0, FIRST)
        with pytest.raises(ClosedError, match="worker 0 has left what it reads of data"):
            await ahead
        with pytest.raises(ClosedError, match="worker 0 has left"):
            await data.group("worker", 0, FIRST, 1, 1)
        return await data.group("worker", 1, FIRST, 2, 2)

    assert sorted(keys(peer.run(story))) == [4, 5]


def test_one_that_has_ended_may_begin_anew(stream, peer, client, wait_for):
    data = stream()
    first = peer.run(data.group, "worker", 0, FIRST, 0, 0)

    async def ends():
        data.left("worker", 0, FIRST)
        data.left("worker", 0)

    peer.run(ends)
    wait_for(lambda: scheduled(client, first) == set(), "nobody reads it any more")
    assert sorted(keys(peer.run(data.group, "worker", 0, FIRST, 0, 0))) == [0, 1]


def test_epochs_in_another_order_have_the_same_partitions(stream, peer):
    data = stream()
    seen = []
    for epoch in range(2):
        for group in range(3):
            told = peer.run(data.group, "worker", 0, FIRST._replace(epoch=epoch, shuffle=True, seed=3), group, group)
            seen += keys(told)
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6))
    assert seen[:6] != seen[6:]


def test_a_partition_that_fails_when_it_is_read(stream, peer):
    def fails(block):
        if block[0] == 8:
            raise RuntimeError("no such file")
        return block

    data = stream(Y.map_blocks(fails, dtype=Y.dtype, meta=np.arange(0)))
    peer.run(data.group, "worker", 0, FIRST, 0, 0)
    with pytest.raises(DataError, match="A partition of data can't be computed: RuntimeError: no such file"):
        peer.run(data.group, "worker", 0, FIRST, 2, 2)


def test_a_group_with_other_columns_than_those_before(stream, peer):
    data = stream([delayed(np.arange)(n) for n in (2.0, 2.0, 2)], window=1)
    told = peer.run(data.group, "worker", 0, FIRST, 0, 0)
    assert pickle.loads(told[0]).columns[0].dtype == "<f8"
    text = "data: partition [01] has rows of float64 numbers and partition 2 has rows of int64 numbers"
    with pytest.raises(DataError, match=text):
        peer.run(data.group, "worker", 0, FIRST, 2, 2)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_a_partition_with_another_number_of_rows_than_its_collection_says(stream, peer, num_rows):
    data = stream(Y.map_blocks(lambda block: np.resize(block, num_rows if block[0] == 8 else 2), dtype=Y.dtype))
    peer.run(data.group, "worker", 0, FIRST, 0, 0)
    with pytest.raises(DataError, match=f"Partition 4 of data had 2 rows and now has {num_rows}"):
        peer.run(data.group, "worker", 0, FIRST, 2, 2)


def test_a_partition_with_another_number_of_rows_than_were_counted(stream, peer, tmp_path):
    def grows():
        (tmp_path / str(time.monotonic_ns())).touch()
        return np.arange(len(list(tmp_path.iterdir())))

    data = stream([delayed(grows, pure=False)()], window=1)
    with pytest.raises(DataError, match=r"Partition 0 of data had \d rows and now has \d\."):
        peer.run(data.group, "worker", 0, FIRST, 0, 0)


def test_in_the_end_nothing_is_left(stream, peer, client, wait_for):
    data = stream()
    told = [peer.run(data.group, "worker", 0, FIRST, group, 0) for group in range(2)]
    peer.run(data.cancel)
    wait_for(lambda: scheduled(client, *told) == set(), "groups are forgotten")
    assert data.own_keys() == []


@pytest.mark.parametrize("of", ["delayed partitions", "a bag", "rows of the client"])
def test_the_first_partition_is_not_computed_again_for_later_groups(peer, client, tmp_path, of):
    def rows(number):
        with open(tmp_path / "made", "a") as file:
            file.write(f"{number} ")
        return [{"x": number, "y": 1}] * 2

    if of == "a bag":
        data = input_data("data", from_delayed([delayed(rows)(n) for n in range(6)]), None, None, label="y").value
    else:
        held = np.zeros(200_000) if of == "rows of the client" else 0
        data = [delayed(lambda n, _: pd.DataFrame(rows(n)))(n, held) for n in range(6)]
    made = StreamOnDask(peer, "data", check_data("data", data, features="x", label="y"), 2)
    try:
        peer.run(made.described, nothing)
        made.table("worker", [next(iter(client.cluster.scheduler.workers))])
        before = (tmp_path / "made").read_text().split().count("0")
        for group in range(3):
            peer.run(made.group, "worker", 0, FIRST, group, group)
        computed = (tmp_path / "made").read_text().split()
        assert set(computed) == set("012345")
        assert computed.count("0") - before <= 1, "as a part of its group"
    finally:
        peer.run(made.cancel)
