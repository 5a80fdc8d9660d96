"""Graphs without the rows that they hold compute the same values; only rows that are worth it are taken out."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dask import delayed
from distributed.protocol.pickle import dumps

from dask_train.collections.blocks import array_of_views, delayed_blocks, with_own_rows
from dask_train.collections.rows_apart import LEAST_BYTES, apart, opened_task

ROWS = 90_000
X = np.random.default_rng(0).random((ROWS, 8))
FRAME = pd.DataFrame({"a": X[:, 0], "b": np.arange(ROWS), "c": pd.Categorical(np.arange(ROWS) % 3)})
SPARSE = scipy.sparse.csr_matrix(np.where(X > 0.5, X, 0.0))


class Scaler:
    """What has an array is no array: it is part of its task's code."""

    def __init__(self, by):
        self.by = by

    def __call__(self, rows):
        return rows * self.by


def arrays():
    return delayed_blocks([da.from_array(X, chunks=(9000, 8))])[0]


def two_arrays():
    blocks = delayed_blocks([array_of_views(X, 9000), array_of_views(X[:, 0], 9000)])
    return [delayed(list)(pieces) for pieces in zip(*blocks, strict=True)]


def mapped():
    return delayed_blocks([da.from_array(X, chunks=(9000, 8)).map_blocks(Scaler(2.0)).sum(axis=1)])[0]


def frame():
    return dd.from_pandas(FRAME, npartitions=3).to_delayed()


def frame_with_columns():
    given = dd.from_pandas(FRAME, npartitions=3)
    return given.assign(d=given.a * 2)[["b", "d"]].to_delayed()


def containers():
    return [delayed((X[:10_000], {"y": [X[:10_000, 0], 3]})), delayed(len)([X[10_000:], FRAME])]


def sparse():
    return [delayed(abs)(SPARSE)]


def sparse_array():
    return [delayed(abs)(scipy.sparse.csr_array(SPARSE))]


def twice():
    block = delayed(X, pure=True)
    return [delayed(np.sum)(block), delayed(np.max)(block)]


def with_another_value():
    return [delayed(np.dot)(X, delayed(np.ones)(8))]


def same(found, wanted):
    if isinstance(wanted, tuple | list):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, dict):
        same(list(found.items()), list(wanted.items()))
    elif hasattr(wanted, "iloc"):
        pd.testing.assert_frame_equal(found, wanted)
    elif scipy.sparse.issparse(wanted):
        assert (found != wanted).nnz == 0
    else:
        np.testing.assert_array_equal(found, wanted)


GRAPHS = [
    arrays,
    two_arrays,
    mapped,
    frame,
    frame_with_columns,
    containers,
    sparse,
    sparse_array,
    twice,
    with_another_value,
]


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_values_are_the_same_and_the_graph_has_no_rows(make):
    values = make()
    found = apart(values)
    opened = []

    def rows(pickled, needs, *given):
        def number(number):
            opened.append(number)
            return found.rows[number]

        return opened_task(pickled, needs, given, number)

    without = found.delayed(rows)
    assert [value.key for value in without] == [value.key for value in values]
    assert sum(len(dumps(dict(value.__dask_graph__()))) for value in found.delayed(print)) < 100_000
    same(dask.compute(*without, scheduler="sync"), dask.compute(*values, scheduler="sync"))
    assert set(opened) == set(range(len(found.rows)))


def test_the_rows_are_those_of_the_user_not_copies():
    assert all(np.shares_memory(rows, X) for rows in apart(two_arrays()).rows)


def test_tasks_of_the_same_array_have_other_keys_in_another_graph():
    """Else a task of one would open what only the other, which has ended, has held."""
    one, other = (
        {key for value in found.delayed(print) for key in dict(value.__dask_graph__())}
        for found in (apart(mapped()), apart(mapped()))
    )
    assert one & other == {value.key for value in mapped()}


def test_rows_that_one_task_uses_are_opened_in_it():
    (value, *_) = apart(two_arrays()).delayed(print)
    assert list(dict(value.__dask_graph__())) == [value.key]


def test_rows_that_several_tasks_use_are_opened_once():
    found = apart(twice())
    assert len(found.rows) == 1
    one, other = (set(dict(value.__dask_graph__())) for value in found.delayed(print))
    assert len(one & other) == 1


def test_only_what_is_asked_for_is_taken():
    assert len(apart(arrays()[:2]).rows) == 2


def test_few_rows_stay():
    assert apart(delayed_blocks([da.from_array(X[: LEAST_BYTES // 64 - 1])])[0]) is None
    assert apart([delayed(abs)(3), delayed("text")]) is None


def test_small_arrays_stay_beside_large_ones():
    assert len(apart([delayed(np.add)(X, X[0])]).rows) == 1


def test_views_are_the_same_array():
    made = array_of_views(X)
    np.testing.assert_array_equal(made.compute(scheduler="sync"), X)
    np.testing.assert_array_equal(array_of_views(X[:0]).compute(scheduler="sync"), X[:0])
    assert made.chunks[0] == (ROWS,)


def test_own_rows_are_not_written_into():
    given = X.copy()
    kept, views = with_own_rows(array_of_views(given, 9000)), array_of_views(given, 9000)
    given[:] = 0
    np.testing.assert_array_equal(kept.compute(scheduler="sync"), X)
    assert not views.compute(scheduler="sync").any()
    lazy = da.ones(3)
    assert with_own_rows(lazy) is lazy
