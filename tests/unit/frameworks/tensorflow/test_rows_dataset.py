"""Rows in shared memory as TensorFlow's data sets: which rows, in which order, in which structure."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from scipy import sparse

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import tensorflow as tf

from dask_train.data.borrowing import borrow
from dask_train.data.columns import Columns, column_of
from dask_train.data.part import Part, shard_of
from dask_train.data.rows import Rows, held_by
from dask_train.data.segment import Segment
from dask_train.data.selection import select
from dask_train.errors import DataError
from dask_train.frameworks.tensorflow import rows_dataset as module
from dask_train.frameworks.tensorflow.rows_dataset import rows_dataset

LENGTHS = np.array([7, 0, 20, 1, 13])
NUMBERS = np.arange(41)


def columns_of(first, length):
    a = np.arange(first, first + length)
    return {"x": np.stack([a, a, a], 1).astype("i2"), "a": a, "z": a + 1j, "text": a.astype("U2")}


@pytest.fixture
def part(own_pool):
    """Makes parts of rows 0 to 40, over 5 partitions in 2 pools, one of them empty."""
    with own_pool() as one, own_pool() as other:
        kept = []

        def make(features=None, label=None, shard=None, names=("x", "a", "z", "text")):
            segments, found, descriptors = [], [], []
            starts = np.cumsum(LENGTHS) - LENGTHS
            for number, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
                columns = columns_of(int(start), int(length))
                segments.append(Segment([columns[name] for name in names], (one, other)[number % 2]))
                if length:
                    descriptors.append(borrow([segments[-1].place]))
                    found.append((number, len(descriptors) - 1, segments[-1].place))
            kept.append(segments)
            schema = Columns(columns=segments[0].columns, names=names, is_tuple=False)
            rows = Rows(schema, LENGTHS, held_by(found, len(schema.columns)), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            return Part(rows, select(schema, features, label), shard_of(LENGTHS, shard))

        yield make
        kept.clear()


def dataset(part, batch_size=None, seed=None, **more):
    return rows_dataset(part, batch_size=batch_size, shuffle_seed=seed, **more)


def values(found):
    return np.concatenate([np.atleast_1d(each) for each in found.as_numpy_iterator()] or [[]]).tolist()


@pytest.mark.parametrize(
    ("shard", "rows"),
    [(None, range(41)), ((0, 2), range(20)), ((1, 2), range(20, 41)), ((49, 60), [33]), ((0, 60), [])],
)
@pytest.mark.parametrize("batch_size", [None, 8, 100])
def test_a_shards_rows_in_order(part, shard, rows, batch_size):
    found = dataset(part("x", "a", shard), batch_size)
    sizes = (
        [8] * (len(rows) // 8) + [len(rows) % 8] * (len(rows) % 8 > 0) if batch_size == 8 else [len(rows)] * bool(rows)
    )
    assert found.cardinality() == (len(rows) if batch_size is None else len(sizes))
    pairs = list(found.as_numpy_iterator())
    if batch_size is None:
        assert [(x.tolist(), int(a)) for x, a in pairs] == [([row] * 3, row) for row in rows]
    else:
        assert [len(a) for _, a in pairs] == sizes
        assert [row for x, _ in pairs for row in x.tolist()] == [[row] * 3 for row in rows]
        assert [row for _, a in pairs for row in a.tolist()] == list(rows)


def test_rows_keep_their_structure_and_dtypes(part):
    whole = next(iter(dataset(part(), 50)))
    assert {name: (each.dtype.name, each.shape.as_list()) for name, each in whole.items()} == {
        "x": ("int16", [41, 3]),
        "a": ("int64", [41]),
        "z": ("complex128", [41]),
        "text": ("string", [41]),
    }
    assert whole["text"].numpy().tolist() == [str(row).encode() for row in NUMBERS]
    assert whole["z"].numpy().tolist() == (NUMBERS + 1j).tolist()
    alone = dataset(part("a"))
    assert alone.element_spec == tf.TensorSpec((), tf.int64)


def test_columns_that_are_copied_are_numbered_as_the_part_is(part):
    found = next(iter(dataset(part("text", "a", (1, 2)), 50)))
    assert [int(text) for text in found[0].numpy()] == found[1].numpy().tolist() == list(range(20, 41))


def test_several_columns_are_one_matrix(part):
    matrix = next(iter(dataset(part(["a"], names=("a", "x")), 3)))
    assert (matrix.dtype, matrix.numpy().tolist()) == (tf.int64, [[0], [1], [2]])


@pytest.mark.parametrize("batch_size", [None, 8])
def test_each_pass_has_an_order_of_its_own_of_all_rows(part, batch_size):
    found = dataset(part("a"), batch_size, 3)
    assert found.cardinality() == (41 if batch_size is None else 6)
    first, second, twice = values(found), values(found), values(found.repeat(2))
    for order in (first, second, twice[:41], twice[41:]):
        assert sorted(order) == NUMBERS.tolist()
    assert len({tuple(order) for order in (NUMBERS.tolist(), first, second, twice[:41], twice[41:])}) == 5


def test_orders_follow_from_the_seed_and_not_from_the_batches(part):
    assert values(dataset(part("a"), None, 3)) == values(dataset(part("a"), 8, 3))
    assert values(dataset(part("a"), None, 3)) != values(dataset(part("a"), None, 4))


def test_a_shard_that_is_shuffled_keeps_to_its_rows(part):
    assert sorted(values(dataset(part("a", shard=(1, 2)), 4, 3))) == list(range(20, 41))
    assert values(dataset(part("a", shard=(0, 60)), 4, 3)) == []


def test_single_rows_are_gathered_some_at_a_time(part, monkeypatch):
    for bytes_at_once, rows_at_once in ((1 << 20, 3), (24, 1024), (1, 1024)):
        monkeypatch.setattr(module, "_GATHER_BYTES", bytes_at_once)
        monkeypatch.setattr(module, "_GATHER_ROWS", rows_at_once)
        assert values(dataset(part("a"))) == NUMBERS.tolist()
        assert sorted(values(dataset(part("a"), None, 3))) == NUMBERS.tolist()


@pytest.mark.parametrize("is_shard", [True, False])
def test_it_is_divided_once_and_its_rows_are_not_copied_by_rewrites(part, is_shard):
    options = dataset(part("a"), 4, is_shard=is_shard).options()
    assert options.experimental_optimization.apply_default_optimizations is False
    off = tf.data.experimental.AutoShardPolicy.OFF
    assert (options.experimental_distribute.auto_shard_policy == off) is is_shard


@pytest.mark.parametrize("values", [np.arange(3).astype(">i4"), np.arange(3, dtype="f8")])
def test_numbers_of_tensorflows_own_are_shared(values):
    assert module._can_be_shared(column_of(values)) is (values.dtype.isnative)
    assert not any(module._can_be_shared(column_of(np.empty(3, dtype))) for dtype in ("U3", "M8[s]", "g"))


def test_what_tensorflow_has_not_is_refused(own_pool):
    with own_pool() as pool:
        segment = Segment([np.arange(3).astype("M8[s]")], pool)
        descriptor = borrow([segment.place])
        schema = Columns(columns=segment.columns, names=None, is_tuple=False)
        rows = Rows(schema, np.array([3]), held_by([(0, 0, segment.place)], 1), [descriptor])
        os.close(descriptor)
        with pytest.raises(DataError, match="TensorFlow"):
            dataset(Part(rows, select(schema, None, None), shard_of(np.array([3]), None)), 2)
        del rows, segment


def test_sparse_rows_are_dense_in_batches_and_are_numbered_as_the_part_is(pool, table_of, mapped):
    dense = np.where(np.arange(20.0).reshape(5, 4) % 3, 0.0, np.arange(20.0).reshape(5, 4))
    parts = [(sparse.csr_array(dense[:2]),), (sparse.csr_array(dense[2:]),)]
    rows = mapped(table_of(parts), {number: Segment(part) for number, part in enumerate(parts)})
    part = Part(rows, select(rows.schema, None, None), shard_of(rows.lengths, None))
    (batch,) = rows_dataset(part, batch_size=5, shuffle_seed=None)
    np.testing.assert_array_equal(batch, dense)
    del batch
