"""A published data set as a process has it that has opened its partitions; publishing itself needs a cluster."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dask_train.data.segment import Segment
from dask_train.shared_data.published import DatasetNames, PublishedDataset, as_source
from dask_train.shared_data.segments import SharedSegments, in_words, lost, segments_in

X, Y, Z = np.arange(30.0).reshape(15, 2), np.arange(15), np.arange(15, dtype="f4") / 2
CUTS = (slice(0, 4), slice(4, 4), slice(4, 10), slice(10, 15))


@pytest.fixture
def dataset(pool, table_of, mapped):
    """Makes data sets of some partitions, all of which this process has opened."""

    def make(*columns: np.ndarray, asynchronous: bool = False, **shape: Any) -> PublishedDataset:
        parts = [[column[cut] for column in columns] for cut in CUTS]
        table = table_of(parts, **shape)
        segments = SharedSegments(schema=table.schema, lengths=table.lengths, futures=())
        peer: Any = SimpleNamespace(asynchronous=asynchronous)
        found = PublishedDataset(peer, "flights", segments, [["tcp://b"], [], ["tcp://a", "tcp://b"], ["tcp://b"]])
        rows = mapped(table, {number: Segment(part) for number, part in enumerate(parts)})
        found._rows[frozenset(range(len(parts)))] = rows
        return found

    return make


def test_what_it_says_of_itself(dataset):
    found = dataset(X, Y, is_tuple=True)
    assert (found.num_rows, found.num_partitions, found.nbytes) == (15, 4, X.nbytes + Y.nbytes)
    assert found.where == {"tcp://a": 1, "tcp://b": 2}
    assert [(name, column.dtype, column.row_shape) for name, column in found.columns.items()] == [
        ("x", "<f8", (2,)),
        ("y", "<i8", ()),
    ]
    assert repr(found) == (
        "<PublishedDataset 'flights': 15 rows of x float64 (2,), y int64; 4 partitions, 360 B, on 2 Dask workers>"
    )
    for words in ("flights", "tcp://a", "float64"):
        assert words in found._repr_html_()


def test_rows_come_in_the_shape_that_was_published(dataset):
    np.testing.assert_array_equal(dataset(X).to_numpy(), X)
    x, y = dataset(X, Y, is_tuple=True).to_numpy()
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    named = dataset(Y, Z, names=("y", "z")).to_numpy()
    assert list(named) == ["y", "z"]
    np.testing.assert_array_equal(named["z"], Z)


def test_columns_are_chosen_by_their_names(dataset):
    found = dataset(X, Y, Z, names=("x", "y", "z"))
    np.testing.assert_array_equal(found.to_numpy(features="y"), Y)
    matrix, label = found.to_numpy(features=["z", "y"], label="x")
    np.testing.assert_array_equal(matrix, np.column_stack([Z, Y]))
    assert matrix.dtype == np.float64, "which holds both"
    np.testing.assert_array_equal(label, X)
    with pytest.raises(ValueError, match="'w'"):
        found.to_numpy(features="w")


@pytest.mark.parametrize("parts", [1, 2, 4, 15, 20])
def test_shards_are_all_rows_once(dataset, parts):
    found = dataset(Y)
    shards = [found.to_numpy(shard=(number, parts)) for number in range(parts)]
    np.testing.assert_array_equal(np.concatenate(shards), Y)
    assert {len(shard) for shard in shards} <= {15 // parts, -(-15 // parts)}
    with pytest.raises(ValueError, match="shard"):
        found.to_numpy(shard=(parts, parts))


def test_what_was_opened_serves_all_that_needs_no_more(dataset):
    found = dataset(Y)
    (rows,) = found._rows.values()
    assert found._opened(frozenset({2})) is rows
    assert found._opened(frozenset()) is rows


@pytest.mark.parametrize("verb", ["to_numpy", "to_torch", "to_tf"])
def test_an_asynchronous_client_can_not_wait(dataset, verb):
    with pytest.raises(ValueError, match=rf"{verb} waits for Dask workers, and the client .* is asynchronous"):
        getattr(dataset(Y, asynchronous=True), verb)()


@pytest.mark.parametrize("batch_size", [0, -1, True])
def test_batches_have_rows(dataset, batch_size):
    with pytest.raises(ValueError, match=f"batch_size is {batch_size}; it is a whole number of at least 1"):
        dataset(Y).to_tf(batch_size=batch_size)


def test_it_does_not_travel(dataset):
    with pytest.raises(TypeError, match=r"mapped into this process and can't travel. .*dt\.get_dataset\('flights'\)"):
        pickle.dumps(dataset(Y))


def test_as_data_it_is_its_segments(dataset):
    found = dataset(X, Y, is_tuple=True)
    assert as_source("data", found) is segments_in(found) is found.segments
    with pytest.raises(ValueError, match=r"lies in shared memory with its columns as they are; features= and label="):
        as_source("data", found, label="y")
    assert segments_in(X) is None


def test_a_record_gives_the_segments_back(dataset):
    segments = dataset(X, Y, names=("x", "y")).segments
    again = segments_in(segments.record())
    assert (again.schema, again.lengths.tolist()) == (segments.schema, [4, 0, 6, 5])
    assert segments_in({**segments.record(), "dask-train data set": 99}) is None, "of a version to come"


def test_in_words(dataset):
    assert in_words(dataset(X, Z, is_tuple=True).columns) == "x float64 (2,), y float32"
    assert "Partition 3 of 7 of data set 'a' is lost" in str(lost("data set 'a'", 3, 7))


def test_names_are_a_tuple_that_a_notebook_shows():
    names = DatasetNames(["a", "b"])
    assert (names, repr(names), names[1]) == (("a", "b"), "('a', 'b')", "b")
    assert "b" in names._repr_html_()
