"""Rows as estimators take them: arrays, frames and categories, and the two sides of a fold."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from dask_train.data.columns import Columns, SourceColumn
from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.rows import FoldRows, RowTable, decoded

COLUMNS = [np.arange(12.0).reshape(6, 2), np.array([0, 1, 1, 0, 1, 0]), np.linspace(0, 1, 6)]
PLAIN = Columns.of_batch(3)
YES_NO = pd.CategoricalDtype(["no", "yes"])


def of_frame(dtypes, labels=None):
    """Columns of a frame."""
    columns, _ = Columns.of(dict.fromkeys(dtypes, "x"), labels)
    origins = {number: (SourceColumn(name=name, dtype=dtype),) for number, (name, dtype) in enumerate(dtypes.items())}
    return columns.with_origins(origins)


class Rows:
    """Rows of two partitions, of three rows each."""

    def __init__(self, columns):
        self.columns, self.lent_to, self.ended = columns, [], 0

    def __len__(self):
        return len(self.columns[0])

    def take(self, numbers):
        return [column[numbers] for column in self.columns]

    @contextmanager
    def lent(self, first, num_rows):
        self.lent_to.append((first, num_rows))
        whole = first // 3 == (first + num_rows - 1) // 3
        yield [column[first : first + num_rows] for column in self.columns] if whole else None
        self.ended += 1


def test_a_matrix_stays_one_and_what_is_not_there_is_none():
    found = FoldRows.of(Columns.of_batch(1), COLUMNS[:1])
    assert found.X is COLUMNS[0]
    assert (found.y, found.weight) == (None, None)


def test_columns_of_a_frame_get_their_names_and_types_back():
    dtypes = {"number": np.dtype("i4"), "answer": YES_NO}
    found = FoldRows.of(of_frame(dtypes), [np.arange(3.0), np.array([1, 0, 1])]).X
    assert found.dtypes.to_dict() == dtypes
    assert found["answer"].tolist() == ["yes", "no", "yes"]


def test_a_missing_category_of_a_feature_stays_missing():
    found = FoldRows.of(of_frame({"answer": YES_NO}), [np.array([1, -1])])
    assert found.X["answer"].isna().tolist() == [False, True]


def test_targets_that_are_categories_are_told_by_their_names():
    columns = PLAIN.with_origins({1: (SourceColumn(name="y", dtype=YES_NO),)})
    assert FoldRows.of(columns, COLUMNS).y.tolist()[:3] == ["no", "yes", "yes"]


def test_values_without_categories_are_as_they_are():
    assert decoded("y", COLUMNS[1], PLAIN[1]) is COLUMNS[1]


def test_rows_without_a_category_are_counted_and_refused():
    with pytest.raises(ValueError, match="y has 2 rows without a category"):
        decoded("y", np.array([-1, 0, -1]), of_frame({"y": YES_NO})[0])


def test_consecutive_rows_to_test_on_are_lent_and_given_back():
    rows = Rows(COLUMNS)
    with RowTable(rows, PLAIN).fold(Split.of(6, [0, 1, 2, 3], [4, 5])) as (trained, tested):
        assert np.shares_memory(tested.X, COLUMNS[0])
        assert not np.shares_memory(trained.X, COLUMNS[0])
        assert (trained.weight.tolist(), tested.y.tolist()) == (COLUMNS[2][:4].tolist(), [1, 0])
        assert rows.ended == 0
    assert (rows.lent_to, rows.ended) == ([(4, 2)], 1)


@pytest.mark.parametrize("tested", [[0, 2], [5, 4], []], ids=["gaps", "backwards", "none"])
def test_other_rows_to_test_on_are_copied(tested):
    rows = Rows(COLUMNS)
    with RowTable(rows, PLAIN).fold(Split.of(6, [1, 3], tested)) as (_, part):
        assert part.y.tolist() == [COLUMNS[1][number] for number in tested]
    assert rows.lent_to == []


def test_rows_over_two_partitions_are_copied_too():
    with RowTable(Rows(COLUMNS), PLAIN).fold(Split.of(6, [0, 5], [1, 2, 3, 4])) as (_, tested):
        assert tested.X.tolist() == COLUMNS[0][1:5].tolist()
        assert not np.shares_memory(tested.X, COLUMNS[0])


def test_all_rows_come_in_order():
    assert RowTable(Rows(COLUMNS), PLAIN).all().X.tolist() == COLUMNS[0].tolist()
