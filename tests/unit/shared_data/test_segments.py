"""Segments that exist, as a source of data: told from everything else, and asked after."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dask_train.collections.shared import decoded
from dask_train.data.columns import Column
from dask_train.data.one_hot import OneHot
from dask_train.errors import DataError
from dask_train.shared_data.segments import published_value, segments_in, unknown

Y = da.arange(10, chunks=4)
X = da.stack([Y, 2 * Y], axis=1)


def test_what_it_says_of_itself(shared):
    segments = shared(X, Y)
    assert (segments.num_rows, segments.nbytes, segments.lengths.tolist()) == (10, 10 * 24, [4, 4, 2])
    assert (segments.names, segments.is_tuple) == (None, True)
    assert segments.keys == [future.key for future in segments.futures]


def test_arrays_come_in_the_shape_that_the_data_has(shared):
    array = shared(X).arrays()
    assert array.chunks == ((4, 4, 2), (2,))
    np.testing.assert_array_equal(array.compute(), X)
    x, y = shared(X, Y).arrays()
    np.testing.assert_array_equal(x.compute(), X)
    np.testing.assert_array_equal(y.compute(), Y)
    named = shared({"b": X, "a": Y}).arrays()
    assert list(named) == ["b", "a"]
    np.testing.assert_array_equal(named["a"].compute(), Y)


def same(found, segments):
    return found is not None and found.keys == segments.keys and found.schema == segments.schema


def test_all_its_arrays_together_are_known_again(shared):
    for data in ((X,), (X, Y), ({"x": X, "y": Y},)):
        segments = shared(*data)
        assert same(segments_in(segments.arrays()), segments)
        assert segments_in(segments.arrays()).lengths.tolist() == [4, 4, 2]
    x, y = shared(X, Y).arrays()
    assert segments_in([x, y]).is_tuple


def test_arrays_by_other_names_are_the_same_segments(shared):
    x, y = shared(X, Y).arrays()
    found = segments_in({"left": x, "right": y})
    assert (found.names, found.is_tuple) == (("left", "right"), False)


def test_less_more_or_other_arrays_are_none(shared):
    x, y = shared(X, Y).arrays()
    other, _ = shared(X + 1, Y).arrays()
    for data in (x, (x,), (y, x), (x, x), (x, y, y), (other, y), (x, Y), (x, y + 1), (x[:4], y[:4]), (), {}, None, "x"):
        assert segments_in(data) is None
    assert segments_in({1: x, "1": y}) is None, "two columns of the same name"


def test_decoded_arrays_are_the_segments_for_who_decodes_alone(shared):
    segments = shared(X, Y)
    x, y = segments.arrays()
    one_hot = decoded(y, OneHot.of(np.arange(10)))
    assert segments_in((x, one_hot)) is None
    found = segments_in((x, one_hot), decodes=True)
    assert found.keys == segments.keys
    assert found.schema[0] == segments.schema[0]
    assert found.schema[1] == Column(dtype="<i8", row_shape=(), decoder=OneHot.of(np.arange(10)))
    assert segments_in((x, one_hot[:4]), decodes=True) is None


def test_what_is_published_is_its_record(shared, client):
    segments = shared({"x": X, "y": Y})
    client.publish_dataset(segments.record(), name="here")
    try:
        found = segments_in(client.get_dataset("here"))
        assert same(found, segments)
        assert (found.names, found.lengths.tolist()) == (("x", "y"), [4, 4, 2])
        assert segments_in({"columns": [], "futures": []}) is None
    finally:
        client.unpublish_dataset("here")


def test_where_each_partition_is(shared, peer, client):
    segments = shared(X)
    where = peer.run(segments.check_there, peer, "data set 'a'")
    workers = {worker.address for worker in client.cluster.workers.values()}
    assert len(where) == 3
    assert all(len(holders) == 1 and holders[0] in workers for holders in where)


def test_one_that_is_lost_is_named(shared, peer, client):
    segments = shared(X)
    client.cancel(segments.futures[1], force=True)
    peer.run(gone, peer, segments.keys[1])
    with pytest.raises(DataError, match=r"Partition 1 of 3 of data set 'a' is lost\. .* publish or persist it again"):
        peer.run(segments.check_there, peer, "data set 'a'")


async def gone(peer, key):
    await peer.ask("train_run_who_has", keys=[key], some=False, timeout_s=20.0)


def test_a_name_that_is_not_published(client, peer):
    with pytest.raises(DataError, match=r"No data set 'b' is published; there are none\."):
        peer.run(published_value, peer, "b")
    client.publish_dataset(1, name="a")
    try:
        assert peer.run(published_value, peer, "a") == 1
        assert "No data set 'b' is published; there are a." in str(peer.run(unknown, peer, "b"))
    finally:
        client.unpublish_dataset("a")
