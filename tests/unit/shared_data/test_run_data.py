"""The data of a run: computed and described, opened by name, and let go of."""

from __future__ import annotations

import asyncio
import pickle
import time

import dask.array as da
import numpy as np
import pytest
from dask import delayed

from dask_train.collections import check_data
from dask_train.errors import DataError
from dask_train.shared_data.run_data import DataSetOnDask, RunData, SharedOnDask
from dask_train.shared_data.streaming import StreamOnDask

Y = da.arange(10, chunks=4)


def source(data=Y):
    return check_data("data", data)


def nothing():
    """Somebody who is not told of progress."""


def known(client, keys):
    return sum(key in client.cluster.scheduler.tasks for key in keys)


def forgotten(client, keys):
    """Whether the scheduler knows none of them, perhaps after it has finished taking up the graph."""
    deadline = time.monotonic() + 10
    while known(client, keys) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not known(client, keys)


@pytest.fixture
def run_data(peer):
    """Makes the data of runs; all of it is let go of in the end."""
    made = []

    def make(data, **settings):
        made.append(RunData(peer, data, **settings))
        return made[-1]

    yield make
    for each in made:
        peer.run(each.cancel)


def test_a_data_set_is_described_when_all_of_it_is_computed(peer, client):
    data, progress = DataSetOnDask(peer, "data", source()), []
    peer.run(data.described, lambda: progress.append(1))
    workers = {worker.address for worker in client.cluster.workers.values()}
    assert (data.num_rows, data.done, len(progress)) == (10, [0, 1, 2], 3)
    assert [set(holders) <= workers and len(holders) for holders in data.where] == [1, 1, 1]
    assert data.own_keys() == data.keys == data.segments().keys
    assert data.segments().lengths.tolist() == [4, 4, 2]
    peer.run(data.cancel)
    assert known(client, data.keys) == 0


def test_a_table_is_the_same_for_all_who_ask_for_it_later(peer):
    data = DataSetOnDask(peer, "data", source())
    peer.run(data.described, nothing)
    ranks = [data.where[0][0], data.where[0][0]]
    first = data.table("worker", ranks)
    table = pickle.loads(first)
    assert (table.num_rows, table.lengths.tolist(), table.host_of_rank.tolist()) == (10, [4, 4, 2], [0, 0])
    assert data.table("worker", ["tcp://10.0.0.9:1"]) is first
    assert len(pickle.loads(data.table("evaluator", ranks[:1])).host_of_rank) == 1
    peer.run(data.cancel)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([np.arange(3), np.arange(2.0)], r"data: partition 0 has rows of int64 numbers and partition 1 has .*float64"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"rows of float64 \(3,\) and partition 1 has rows of float64 \(4,\)"),
        ([np.zeros(0), np.zeros(0)], r"data has no rows\."),
    ],
)
def test_partitions_that_make_no_data_set(peer, parts, text):
    data = DataSetOnDask(peer, "data", source([delayed(part) for part in parts]))
    with pytest.raises(DataError, match=text):
        peer.run(data.described, nothing)
    peer.run(data.cancel)


def test_a_partition_that_fails(peer):
    data = DataSetOnDask(peer, "data", source(Y.map_blocks(lambda block: 1 // 0, dtype=Y.dtype, meta=np.arange(0))))
    with pytest.raises(DataError, match="A partition of data can't be computed: ZeroDivisionError"):
        peer.run(data.described, nothing)
    peer.run(data.cancel)


def test_segments_that_exist_are_others_as_well(peer, client, shared):
    segments = shared(Y)
    data = SharedOnDask(peer, "data", segments)
    peer.run(data.described, nothing)
    assert (data.num_rows, data.own_keys(), len(data.where)) == (10, [], 3)
    assert pickle.loads(data.table("worker", data.where[0])).lengths.tolist() == [4, 4, 2]
    peer.run(data.cancel)
    assert known(client, segments.keys) == 3
    assert segments.arrays().sum().compute() == 45


def test_only_what_is_not_in_memory_is_streamed(run_data, shared):
    data = run_data({"worker": source(), "evaluator": shared(Y)}, window=2, named={"other": source()})
    assert isinstance(data.by_role["worker"], StreamOnDask)
    assert type(data.by_role["evaluator"]) is SharedOnDask
    data.left("worker", 0)
    data.left("evaluator", 0)
    data.left("nobody", 0)


def test_rows_and_keys_of_all_of_them(run_data, peer):
    data = run_data({"worker": source(), "evaluator": source(Y[:3])}, named={"other": source()})
    peer.run(data.described, nothing)
    assert data.num_rows() == {("worker", 0): 10, ("evaluator", 0): 3}
    assert len(data.own_keys()) == 3 + 1 + 3


def test_an_error_names_the_role(run_data, peer):
    data = run_data({"worker": source(), "evaluator": source([delayed(np.zeros)(0)])})
    with pytest.raises(DataError, match=r"data\['evaluator'\] has no rows"):
        peer.run(data.described, nothing)


def test_a_data_set_of_the_run_is_opened_once_for_all_who_ask(run_data, peer):
    data = run_data({}, named={"one": source(), "other": source(Y[:3])})

    async def ask(*names):
        return await asyncio.gather(*(data.open(name, check_data) for name in names))

    assert peer.run(ask, "other", "one", "other") == [1, 2, 1]
    assert peer.run(ask, "one") == [2]
    assert (data.data_set(1).num_rows, data.data_set(2).num_rows) == (3, 10)
    assert data.num_rows() == {("", 1): 3, ("", 2): 10}


def test_a_published_data_set_is_opened_by_its_name(run_data, peer, client, shared):
    segments = shared(Y)
    client.publish_dataset(segments.record(), name="segments")
    client.publish_dataset(Y + 1, name="array")
    client.publish_dataset("no data", name="text")
    try:
        data = run_data({}, named={"array": source(Y[:3])})
        assert peer.run(data.open, "segments", check_data) == 1
        assert data.data_set(1).keys == segments.keys, "not copied"
        assert peer.run(data.open, "array", check_data) == 2
        assert data.data_set(2).num_rows == 3, "the run's own comes first"
        other = run_data({})
        assert peer.run(other.open, "array", check_data) == 1
        found = other.data_set(1)
        assert found.num_rows == 10
        assert peer.run(other.open, "array", check_data) == 1
        assert other.data_set(1) is found, "it is not computed again"
        with pytest.raises(DataError, match="data set 'text'"):
            peer.run(data.open, "text", check_data)
    finally:
        for name in ("segments", "array", "text"):
            client.unpublish_dataset(name)


def test_one_that_is_published_late_is_found_then(run_data, peer, client, shared):
    data = run_data({}, named={"one": source()})
    for _ in range(2):
        with pytest.raises(DataError, match="No data set 'late' is published"):
            peer.run(data.open, "late", check_data)
    assert peer.run(data.open, "one", check_data) == 2
    assert data.num_rows() == {("", 2): 10}
    client.publish_dataset(shared(Y[:3]).record(), name="late")
    try:
        assert peer.run(data.open, "late", check_data) == 1
        assert peer.run(data.open, "one", check_data) == 2
        assert data.num_rows() == {("", 1): 3, ("", 2): 10}
    finally:
        client.unpublish_dataset("late")


def test_one_that_gives_up_takes_it_from_nobody_else(run_data, peer):
    data = run_data({}, named={"one": source()})

    async def ask():
        first, second = (asyncio.ensure_future(data.open("one", check_data)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert peer.run(ask) == 1


def test_the_end_does_not_wait_for_one_that_is_being_opened(run_data, peer, client):
    data = run_data({"worker": source()}, named={"one": source(Y + 4)})

    async def never(_):
        await asyncio.Event().wait()

    data._named["one"].described = never

    async def end():
        opening = asyncio.ensure_future(data.open("one", check_data))
        await asyncio.sleep(0)
        await asyncio.wait_for(data.cancel(), 10)
        with pytest.raises(asyncio.CancelledError):
            await opening

    keys = data.own_keys()
    assert len(keys) == 6
    peer.run(end)
    assert forgotten(client, keys)


def test_in_the_end_all_is_forgotten(peer, client, shared):
    there = shared(Y)
    client.publish_dataset(Y + 2, name="array")
    try:
        data = RunData(peer, {"worker": source(), "evaluator": there}, named={"never": source(Y + 3)})
        peer.run(data.described, nothing)
        peer.run(data.open, "array", check_data)
        keys = [*data.own_keys(), *data.data_set(1).keys]
        assert known(client, keys) == len(keys) == 9
        peer.run(data.cancel)
        assert known(client, keys) == 0
        assert known(client, there.keys) == 3
    finally:
        client.unpublish_dataset("array")
