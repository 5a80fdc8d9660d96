"""Sparse rows as they lie in shared memory, and as partitions, batches and other hosts have them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from dask_train.data.batches import Reader
from dask_train.data.buffers import Buffers
from dask_train.data.columns import column_of, same_columns
from dask_train.data.order import shares
from dask_train.data.plan import EpochPlan
from dask_train.data.segment import Segment
from dask_train.data.sparse_rows import gathered, loose, packed, unpacked

DENSE = np.where(np.arange(42).reshape(6, 7) % 3, 0, np.arange(42).reshape(6, 7))
DENSE[2] = 0  # a row without an entry


def some(dtype="f8", kind=sparse.csr_array):
    return kind(DENSE.astype(dtype))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_array])
def test_each_comes_back_as_it_was(dtype, kind):
    rows = some(dtype, kind)
    found = unpacked(packed(rows), np.arange(6), dtype, (7,))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.toarray(), DENSE.astype(dtype))


def test_entries_keep_their_order_and_are_a_view_of_the_memory():
    rows = sparse.csr_array((np.array([1.0, 2.0, 0.0, 4.0]), np.array([5, 1, 3, 3]), np.array([0, 2, 4])), shape=(2, 7))
    memory = packed(rows)
    found = unpacked(memory, np.arange(2), "f8", (7,))
    assert (found.indices.tolist(), found.data.tolist()) == ([5, 1, 3, 3], [1.0, 2.0, 0.0, 4.0])
    assert np.shares_memory(found.data, memory)
    assert np.shares_memory(found.indices, memory)


def test_some_rows_of_images_that_follow_each_other():
    images = [packed(some()[:4]), packed(some()[4:])]
    memory = np.concatenate([images[0], np.zeros(-images[0].nbytes % 24, np.uint8), images[1]])
    second = -(-images[0].nbytes // 24)
    numbers, places = np.array([second + 1, 1, 2, second, 1]), [5, 1, 2, 4, 1]
    np.testing.assert_array_equal(unpacked(memory, numbers, "f8", (7,)).toarray(), DENSE[places])
    travelled = pickle.loads(pickle.dumps(loose(memory, numbers, "f8", (7,))))
    np.testing.assert_array_equal(gathered(travelled, "f8", (7,)).toarray(), DENSE[places])


def test_columns_that_need_long_numbers():
    rows = sparse.csr_array((np.ones(2), np.array([1, 2**40]), np.array([0, 1, 2])), shape=(2, 2**41))
    memory = packed(rows)
    found = unpacked(memory, np.arange(2), "f8", (2**41,))
    assert found.indices.tolist() == [1, 2**40]
    assert gathered(loose(memory, np.array([1]), "f8", (2**41,)), "f8", (2**41,)).indices.tolist() == [2**40]


@pytest.mark.parametrize("dtype", ["c16", "g"])
def test_other_entries_are_refused(dtype):
    with pytest.raises(TypeError, match=r"a sparse matrix of .*astype\(float\)"):
        column_of(some(dtype))


def test_sparse_and_dense_partitions_differ():
    columns = [(6, (column_of(rows),)) for rows in (some(), DENSE.astype("f8"))]
    with pytest.raises(ValueError, match=r"partition 0 has sparse rows of float64 \(7,\) and partition 1 has rows of"):
        same_columns(columns)


@pytest.fixture
def parts():
    """Uneven partitions of sparse rows and their numbers, one without rows."""
    rows, numbers = some("f4"), np.arange(6)
    return [[rows[cut], numbers[cut]] for cut in (slice(0, 4), slice(4, 4), slice(4, 6))]


def test_segments_travel_and_are_read_as_views(pool, parts):
    segment = Segment(parts[0], pool)
    for each in (segment, pickle.loads(pickle.dumps(segment))):
        rows, numbers = each.arrays()
        np.testing.assert_array_equal(rows.toarray(), DENSE[:4].astype("f4"))
        assert numbers.tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="read-only"):
            rows.data[0] = 1
        del rows, numbers


def batches(reader, rows, lengths, shuffle):
    plan = EpochPlan(lengths=np.array(lengths), shuffle=shuffle, seed=3, epoch=1)
    return reader.read(shares(plan, batch_size=2, rank=0, size=1), rows, in_order=not shuffle)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("here", [(0, 1, 2), (0,), (2,)])
def test_batches_are_dense_and_partitions_sparse(pool, table_of, mapped, parts, shuffle, here):
    segments = {number: Segment(part, pool) for number, part in enumerate(parts)}
    rows = mapped(table_of(parts), {number: segments[number] for number in here})

    def fetch(partition, row):
        """What :meth:`Segment.rows` gives of other hosts."""
        each = [segments[p].rows(np.array([r])) for p, r in zip(partition.tolist(), row.tolist(), strict=True)]
        return [np.concatenate(column) for column in zip(*each, strict=True)]

    seen = []
    for batch in batches(Reader(fetch, Buffers(), "read-only"), rows, (4, 0, 2), shuffle):
        np.testing.assert_array_equal(batch.arrays[0], DENSE[batch.arrays[1]].astype("f4"))
        seen += batch.arrays[1].tolist()
        del batch
    assert sorted(seen) == list(range(6))
    for number in {*here} - {1}:
        partition, _ = rows.partition(number)
        np.testing.assert_array_equal(partition.toarray(), parts[number][0].toarray())
        with pytest.raises(ValueError, match="read-only"):
            partition.indices[0] = 1
        del partition, _
    assert rows.lent(here[0], 0, 1) is None
