"""What is made of each block keeps each row in its place, once, and nothing is computed before it is asked for."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.collections import blocks
from dask_train.collections.blocks import arrays_by_block, delayed_blocks, with_whole_rows
from dask_train.data.columns import Column

X, Y = np.arange(24.0).reshape(12, 2), np.arange(12.0)


def unknown(array: da.Array) -> da.Array:
    return array[da.ones(array.shape[0], chunks=array.chunks[0], dtype=bool)]


def flat(block):
    while isinstance(block, list):
        (block,) = block
    return block


def both(add, place, x, y):
    return flat(x) + add, flat(x)[:, 0] - 2 * flat(y)


def first(add, place, x, y):
    return both(add, place, x, y)[0]


def choose(place, outputs):
    return outputs[place]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 13), st.integers(1, 13), st.integers(1, 2), st.booleans())
def test_rows_stay_together(x_rows, y_rows, x_columns, several):
    x = da.from_array(X, chunks=(x_rows, x_columns))
    cut = with_whole_rows("data", (x, da.from_array(Y, chunks=y_rows)))
    assert [one.chunks[0] for one in cut] == [x.chunks[0]] * 2
    outputs = [Column(dtype="<f8", row_shape=(2,)), Column(dtype="<f8", row_shape=())][: 1 + several]
    task = both if several else first
    made = arrays_by_block(task, choose, name=f"n-{x.name}", model=100.0, arrays=cut, outputs=outputs)
    assert [one.chunks[0] for one in made] == [x.chunks[0]] * len(outputs)
    found = [one.compute(scheduler="synchronous") for one in made]
    np.testing.assert_array_equal(found[0], X + 100)
    if several:
        np.testing.assert_array_equal(found[1], np.zeros(12))


def test_a_block_knows_its_place_however_tasks_are_put_together():
    x, output = da.from_array(X, chunks=(5, 2)), Column(dtype="<f8", row_shape=())

    def placed(model, place, block):
        return np.full(len(flat(block)), float(*place))

    (made,) = arrays_by_block(placed, choose, name=f"n-{x.name}", model=0, arrays=(x,), outputs=[output])
    assert made.compute(scheduler="sync").tolist() == [0] * 5 + [1] * 5 + [2] * 2
    assert (made[10:] + 1).compute(scheduler="sync").tolist() == [3, 3]
    unsized = with_whole_rows("data", (unknown(x),))
    (made,) = arrays_by_block(placed, choose, name=f"u-{x.name}", model=0, arrays=unsized, outputs=[output])
    assert made.compute(scheduler="sync").tolist() == [0] * 5 + [1] * 5 + [2] * 2


def test_numpy_arrays_are_cut_into_blocks_of_whole_rows(monkeypatch):
    monkeypatch.setattr(blocks, "PIECE_BYTES", 5 * X[0].nbytes)
    x, y = with_whole_rows("data", (X, Y))
    assert (x.chunks, y.chunks) == (((5, 5, 2), (2,)), ((5, 5, 2),))


def test_arrays_of_unknown_length_are_taken_chunk_by_chunk():
    x, y = (unknown(da.from_array(one, chunks=4 if one.ndim == 1 else (4, 2))) for one in (X, Y))
    assert [one.numblocks[0] for one in with_whole_rows("data", (x, y))] == [3, 3]
    with pytest.raises(ValueError, match=r"have 3 and 2 chunks. Call compute_chunk_sizes\(\)"):
        with_whole_rows("data", (x, unknown(da.from_array(Y, chunks=6))))


@pytest.mark.parametrize(
    ("values", "error", "told"),
    [
        ((X, Y[:11]), ValueError, "have 12, 11 rows"),
        ((np.float64(1),), ValueError, "without an axis"),
        (([1, 2],), TypeError, "has a list"),
        ((pd.DataFrame({"a": Y}).a,), TypeError, "has a Series"),
        ((unknown(da.from_array(X, chunks=(4, 2)).T).T,), ValueError, "what a row looks like is not known"),
    ],
)
def test_what_is_refused(values, error, told):
    with pytest.raises(error, match=told):
        with_whole_rows("data", values)


@pytest.mark.parametrize("length", [4, np.nan])
def test_what_columns_share_is_computed_once(length):
    made = []

    def frame(number):
        made.append(number)
        return pd.DataFrame({"a": np.arange(4.0), "b": 1.0, "y": number})

    parts = [dask.delayed(frame, pure=False)(number) for number in range(3)]
    x = [da.from_delayed(part[["a", "b"]].to_numpy(), (length, 2), "f8") for part in parts]
    y = [da.from_delayed(part["y"].to_numpy(), (length,), "i8") for part in parts]
    columns = [da.concatenate(each, allow_unknown_chunksizes=True) for each in (x, y)]
    found = dask.compute(*zip(*delayed_blocks([columns[0] + 1, columns[1]]), strict=True), scheduler="sync")
    assert sorted(made) == [0, 1, 2]
    assert [(x.shape, y.tolist()) for x, y in found] == [((4, 2), [number] * 4) for number in range(3)]


def test_arrays_that_share_tasks_are_optimized_together():
    x = da.random.default_rng(0).normal(size=(8, 3), chunks=(4, 3)).astype("f4")
    y = x[:, 0] + x[:, 1]
    both = [dict(column[0].__dask_graph__()) for column in delayed_blocks((x, y))]
    alone = dict(x.to_delayed()[0, 0].__dask_graph__())
    assert all(x.__dask_keys__()[0][0] in graph for graph in both)
    assert all(type(graph[key]) is type(alone[key]) for graph in both for key in graph.keys() & alone.keys())
