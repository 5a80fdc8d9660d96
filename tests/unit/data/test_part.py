"""Shards have every row once, and a part's rows are those that were put there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.borrowing import borrow
from dask_train.data.columns import Columns
from dask_train.data.part import Part, shard_of
from dask_train.data.pool import Pool
from dask_train.data.rows import Rows, held_by
from dask_train.data.segment import Segment
from dask_train.data.selection import select

LENGTHS = [7, 0, 20, 1, 13]


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 9))
def test_shards_have_every_row_once_and_differ_by_at_most_one(lengths, parts):
    lengths = np.array(lengths, np.int64)
    seen, sizes = [], []
    for number in range(parts):
        of = shard_of(lengths, (number, parts))
        assert (of.length > 0).all()
        rows = [
            (partition, row)
            for partition, start, length in zip(of.partition, of.start, of.length, strict=True)
            for row in range(start, start + length)
        ]
        sizes.append(len(rows))
        seen += rows
    assert seen == [(partition, row) for partition, length in enumerate(lengths) for row in range(length)]
    assert max(sizes) - min(sizes) <= 1


def test_all_rows_are_one_shard():
    of = shard_of(np.array([3, 0, 2]), None)
    assert (of.partition.tolist(), of.start.tolist(), of.length.tolist()) == ([0, 2], [0, 0], [3, 2])


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0,), 3, ("a", 2), (0.5, 2)])
def test_other_shards_are_refused(shard):
    with pytest.raises(ValueError, match=r"shard is .*(pass \(i, n\)|there are those from 0)"):
        shard_of(np.array([4]), shard)


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    """Makes a part of columns ``x`` (n, 2), ``a``, ``b``: ``a`` counts the rows, ``x`` has it twice, ``b`` is half."""
    descriptors = []
    pools = [Pool(keep_warm_s=0.0), Pool(keep_warm_s=0.0)]

    def make(features=None, label=None, shard=None):
        segments, found, first = [], [], 0
        for number, length in enumerate(LENGTHS):
            a = np.arange(first, first + length)
            first += length
            segments.append(Segment([np.stack([a, a], 1).astype("i2"), a, a / 2], pools[number % 2]))
            if length:
                descriptors.append(borrow([segments[-1].place]))
                found.append((number, len(descriptors) - 1, segments[-1].place))
        schema = Columns(columns=segments[0].columns, names=("x", "a", "b"), is_tuple=False)
        lengths = np.array(LENGTHS)
        rows = Rows(schema, lengths, held_by(found, 3), descriptors)
        return Part(rows, select(schema, features, label), shard_of(lengths, shard))

    yield make
    for descriptor in descriptors:
        os.close(descriptor)
    for pool in pools:
        pool.trim()


@pytest.mark.parametrize("shard", [None, (0, 3), (1, 3), (2, 3), (50, 60)])
def test_rows_of_a_part(opened, shard):
    part = opened(shard=shard)
    number, parts = shard or (0, 1)
    expected = np.arange(41)[number * 41 // parts : (number + 1) * 41 // parts]
    assert len(part) == len(expected)
    given = part.shaped(part.all())
    assert list(given) == ["x", "a", "b"]
    assert given["a"].tolist() == expected.tolist()
    assert given["x"].tolist() == np.stack([expected] * 2, 1).tolist()
    assert given["b"].tolist() == (expected / 2).tolist()
    assert [array.dtype for array in given.values()] == ["i2", "i8", "f8"]
    assert part.row_bytes == 4 + 8 + 8
    chosen = np.random.default_rng(0).permutation(len(part))
    assert part.shaped(part.take(chosen))["a"].tolist() == expected[chosen].tolist()
    assert part.column(1).tolist() == expected.tolist()


def test_a_matrix_beside_a_label(opened):
    part = opened(features=["b", "a"], label="x", shard=(1, 2))
    expected = np.arange(20, 41)
    for matrix, label in (part.shaped(part.all()), part.shaped(part.take(np.arange(21)))):
        assert matrix.tolist() == np.stack([expected / 2, expected], 1).tolist()
        assert matrix.dtype == np.float64
        assert label[:, 1].tolist() == expected.tolist()
