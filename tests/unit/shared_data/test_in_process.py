"""The data of a run in the client's own process, with a cluster and without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed

from dask_train.collections import check_data
from dask_train.errors import DataError
from dask_train.shared_data.in_process import InProcessData, mapped_here

Y = da.arange(10, chunks=4)


def source(data=Y, what="data"):
    return check_data(what, data)


def parts(*arrays):
    return source([delayed(array) for array in arrays])


def values(rows):
    """The only column."""
    partition = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
    row = np.concatenate([np.arange(length) for length in rows.lengths])
    out = rows.schema.columns[0].empty(len(row))
    rows.take(partition, row, [out])
    return out.tolist()


THREADS = Y.map_blocks(lambda block: block * 0 + get_ident(), dtype=Y.dtype, meta=np.arange(0))


# Without a client, which comes further down and stays


def test_without_a_cluster_it_is_computed_here_in_this_thread(pool):
    table, rows = mapped_here(None, "data", source(THREADS))
    assert (table.num_rows, table.lengths.tolist(), table.owner.tolist()) == (10, [4, 4, 2], [0, 0, 0])
    assert values(rows) == [get_ident()] * 10


def test_dask_config_says_where_else(pool):
    with ThreadPoolExecutor(1) as threads, dask.config.set(scheduler="threads", pool=threads):
        _, rows = mapped_here(None, "data", source(THREADS))
    assert get_ident() not in values(rows)


def test_partitions_without_rows_and_the_form_that_the_first_one_tells(pool):
    table, rows = mapped_here(None, "data", parts({"a": np.arange(3)}, {"a": np.arange(0)}, {"a": np.arange(2)}))
    assert (table.schema.names, table.schema.is_tuple) == (("a",), False)
    assert (table.lengths.tolist(), values(rows)) == ([3, 0, 2], [0, 1, 2, 0, 1])


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ([np.zeros(0), np.zeros(0)], r"data has no rows\."),
        ([np.arange(3), np.arange(3.0)], r"data: partition 0 has rows of int64 numbers and partition 1 has"),
    ],
)
def test_partitions_that_make_no_data_set(pool, arrays, text):
    with pytest.raises(DataError, match=text):
        mapped_here(None, "data", parts(*arrays))


def test_each_is_mapped_once_and_numbered_as_it_is_asked_for(pool):
    data = InProcessData(None, {"one": source(), "other": source(Y[:3]), "never": parts(np.zeros(0))})
    number, _, rows = data.open("other")
    assert (number, values(rows)) == (1, [0, 1, 2])
    assert data.open("one")[0] == 2
    number, _, again = data.open("other")
    assert number == 1
    assert again is rows
    assert data.num_rows() == {1: 3, 2: 10}


@pytest.mark.parametrize(("named", "known"), [({}, "none"), ({"a": None, "b": None}, "a, b")])
def test_without_a_cluster_nothing_else_is_known(named, known):
    text = rf"There is no data set 'x'; the run has {known}, and without a Dask client none are published"
    with pytest.raises(DataError, match=text):
        InProcessData(None, named).open("x")


def test_what_a_partition_raises_is_raised_as_it_is(pool):
    lazy = Y.map_blocks(lambda block: 1 // 0, dtype=Y.dtype, meta=np.arange(0))
    with pytest.raises(ZeroDivisionError):
        mapped_here(None, "data", source(lazy))


# With one


def test_a_partition_that_the_cluster_can_not_compute(peer):
    lazy = Y.map_blocks(lambda block: 1 // 0, dtype=Y.dtype, meta=np.arange(0))
    with pytest.raises(DataError, match="A partition of data can't be computed: ZeroDivisionError"):
        mapped_here(peer, "data", source(lazy))


def test_a_cluster_computes_it_and_forgets_it(peer, client):
    scheduler, before = client.cluster.scheduler, set(client.cluster.scheduler.tasks)
    table, rows = mapped_here(peer, "data", source(Y + 7))
    assert (table.num_rows, values(rows)) == (10, list(range(7, 17)))
    assert set(scheduler.tasks) <= before


def test_segments_need_no_client_to_be_named(shared):
    table, rows = mapped_here(None, "data", shared(Y))
    assert (table.num_rows, values(rows)) == (10, list(range(10)))


def test_published_data_sets(peer, client, shared):
    segments = shared(Y)
    client.publish_dataset(segments.record(), name="segments")
    client.publish_dataset(Y + 1, name="array")
    client.publish_dataset("no data", name="text")
    try:
        data = InProcessData(peer, {"array": source(Y[:3])})
        assert values(data.open("segments")[2]) == list(range(10))
        assert values(data.open("array")[2]) == [0, 1, 2], "the run's own comes first"
        assert values(InProcessData(peer, {}).open("array")[2]) == list(range(1, 11))
        with pytest.raises(DataError, match="data set 'text'"):
            data.open("text")
        with pytest.raises(DataError, match="No data set 'none' is published"):
            data.open("none")
        assert data.num_rows() == {1: 10, 2: 3}, "what could not be opened has no number"
    finally:
        for name in ("segments", "array", "text"):
            client.unpublish_dataset(name)
