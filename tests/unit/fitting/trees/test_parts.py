"""Parts of one rank that is alone, and queries that lie in several of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from alone import described

from dask_train.data.columns import Column, Columns, SourceColumn
from dask_train.fitting.trees.parts import TreeRows, check_numbers, classes_of, frame_of, parts_of

SCHEMA = Columns(
    columns=(Column(dtype="<f8", row_shape=(1,)), Column(dtype="<i8", row_shape=())), names=None, is_tuple=True
)
WITH_QUERIES = Columns(columns=(*SCHEMA.columns, Column(dtype="<i8", row_shape=())), names=None, is_tuple=True)


def same(arrays, op="sum"):
    return arrays


ALONE = SimpleNamespace(all_gather=same, all_reduce=same, world_rank=0, world_size=1, num_rows=8)


def columns(first, *queries):
    x = np.arange(first, first + len(queries), dtype=float)[:, None]
    return (x, x[:, 0].astype(int), np.array(queries))


def rows(schema, *partitions, numbers=None):
    numbers = range(len(partitions)) if numbers is None else numbers
    return SimpleNamespace(
        schema=schema, partitions=lambda: iter(partitions), partition_numbers=np.array(numbers, np.int64)
    )


def test_every_query_is_in_one_part_with_its_rows_together():
    plan = described(1, groups=2)
    parts = parts_of(ALONE, rows(WITH_QUERIES, columns(0, 5, 1, 5, 2), columns(4, 2, 3, 3, 1)), plan)
    assert [part.qid.tolist() for part in parts] == [[5, 5], [3, 3], [1, 1, 2, 2]]
    assert [part.x[:, 0].tolist() for part in parts] == [[0, 2], [5, 6], [1, 7, 3, 4]]
    assert parts[2].group_sizes().tolist() == [2, 2]


def test_rows_of_a_query_that_was_cut_have_the_order_of_the_collection():
    plan = described(1, groups=2)
    partitions = [columns(0, 7, 7), columns(2, 3, 7), columns(4, 7, 3)]
    parts = parts_of(ALONE, rows(WITH_QUERIES, *partitions, numbers=[8, 2, 5]), plan)
    assert [part.qid.tolist() for part in parts] == [[3, 3, 7, 7, 7, 7]]
    assert parts[0].x[:, 0].tolist() == [2, 5, 3, 4, 0, 1]


def test_a_rank_without_rows_has_a_part_of_none():
    plan = described(1)
    (none,) = parts_of(ALONE, rows(SCHEMA), plan)
    assert (none.x.shape, len(none)) == ((0, 1), 0)
    assert classes_of(ALONE, [none, TreeRows(x=np.ones((3, 1)), y=np.array([2, 0, 2]))]).tolist() == [0, 2]


def test_labels_of_text_are_as_long_as_the_longest_of_all_ranks():
    def longest(size, op):
        return np.maximum(size, 5) if op == "max" else size

    session = SimpleNamespace(all_gather=same, all_reduce=longest)
    parts = [TreeRows(x=np.ones((2, 1)), y=np.array(given, object)) for given in (["no", "yes"], ["maybe", "no"])]
    assert classes_of(session, parts).tolist() == ["maybe", "no", "yes"]
    assert classes_of(session, parts[:1]).dtype == "<U5"
    assert classes_of(ALONE, [TreeRows(x=np.ones((0, 1)), y=np.empty(0, object))]).tolist() == []
    with pytest.raises(ValueError, match="Targets have None among text"):
        classes_of(ALONE, [TreeRows(x=np.ones((2, 1)), y=np.array(["no", None], object))])


def test_weights_are_those_of_queries():
    part = TreeRows(
        x=np.ones((4, 1)), y=np.zeros(4), sample_weight=np.array([2.0, 2, 3, 3]), qid=np.array([1, 1, 4, 4])
    )
    assert part.group_weights().tolist() == [2, 3]
    with pytest.raises(ValueError, match="Rows of one query have different sample weights"):
        TreeRows(x=part.x, y=part.y, sample_weight=np.arange(4.0), qid=part.qid).group_weights()


def test_codes_become_categories_again():
    kinds = SourceColumn(name="kind", dtype=pd.CategoricalDtype(["x", "y"]))
    column = Column(dtype="<f8", row_shape=(2,), origins=(kinds, SourceColumn(name="a", dtype=np.dtype("f8"))))
    frame = frame_of(np.array([[1, 5.0], [-1, np.nan], [0, 7]]), column)
    assert frame["kind"].astype(object).fillna("none").tolist() == ["y", "none", "x"]
    assert frame["a"].tolist()[::2] == [5, 7]


@pytest.mark.parametrize(
    ("column", "what"),
    [("y", "targets"), ("sample_weight", "weights"), ("margin", "first scores"), ("qid", "numbers of queries")],
)
def test_only_features_may_be_missing(column, what):
    with pytest.raises(ValueError, match=rf"Validation: 1 of 3 {what} in one partition are NaN or infinite"):
        check_numbers(
            [TreeRows(**{"x": np.full((3, 1), np.nan), "y": np.zeros(3), column: np.array([1, np.nan, 2])})],
            "Validation",
        )


@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_weights_are_not_negative(dtype):
    weights = np.array([1, -1, -2], dtype)
    with pytest.raises(ValueError, match="The data: 2 of 3 weights in one partition are negative"):
        check_numbers([TreeRows(x=np.zeros((3, 1)), y=np.zeros(3), sample_weight=weights)], "The data")
    check_numbers([TreeRows(x=np.zeros((3, 1)), y=np.zeros(3), sample_weight=abs(weights) - 1)], "The data")


def test_columns_of_which_the_names_are_the_same_as_text_are_all_there():
    kind = SourceColumn(name="1", dtype=pd.CategoricalDtype(["u", "v"]))
    column = Column(dtype="<f8", row_shape=(2,), origins=(SourceColumn(name=1, dtype=np.dtype("f8")), kind))
    frame = frame_of(np.array([[0.5, 1], [2, 0]]), column)
    assert list(frame.columns) == ["1", "1"]
    assert (frame.iloc[:, 0].tolist(), frame.iloc[:, 1].tolist()) == ([0.5, 2], ["v", "u"])
