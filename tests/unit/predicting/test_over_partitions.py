"""What partitions' tasks have found is joined, in order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss

import dask_train as dt
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.predicting import over_partitions
from dask_train.predicting.rows_to_score import lengths_of
from dask_train.shared_data.segments import SharedSegments


@pytest.mark.parametrize("count", [1, 2, 16, 17, 300])
def test_all_are_joined_in_order_some_at_a_time(count: int) -> None:
    sizes: list[int] = []

    def join(some: list[list[int]]) -> list[int]:
        sizes.append(len(some))
        return sum(some, [])

    assert over_partitions.joined(join, [[number] for number in range(count)]) == list(range(count))
    assert max(sizes) <= over_partitions.FAN_IN


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["estimator", "booster", "Keras"])
def test_a_frame_without_partitions_has_no_rows(kind: str) -> None:
    table = pd.DataFrame(ROWS, columns=list("abcd"))
    metrics = {"metrics": [log_loss]} if kind == "booster" else {}
    if kind == "estimator":
        model: Any = LinearRegression().fit(table[["a", "b", "c"]], table["d"])
    elif kind == "booster":
        model = xgboost.train({}, xgboost.DMatrix(table[["a", "b", "c"]], table["d"]), 1)
    else:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    with pytest.raises(ValueError, match="There are no rows to evaluate on"):
        dt.evaluate(model, dd.from_pandas(table, 2).partitions[:0], label="d", verbose=2, **metrics)


def test_lengths_of_arrays_where_they_are_known() -> None:
    known = da.zeros((10, 2), chunks=((3, 7), 2))
    assert lengths_of(known, 2) == [3, 7]
    assert lengths_of(known, 1) is None, "it was cut otherwise"
    assert lengths_of(known[known[:, 0] > 0], 2) is None
    assert lengths_of(np.zeros((3, 2)), 1) is None


ROWS = np.random.default_rng(0).normal(size=(10, 4))


class Partition:
    """A segment where Dask has the future of one."""

    def __init__(self, number: int, *columns: np.ndarray) -> None:
        self.key, self._columns, self.num_rows, self.columns = f"part-{number}", columns, len(columns[0]), ()

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self._columns


def published(*columns: np.ndarray, names: tuple[str, ...] | None = None) -> SimpleNamespace:
    """A data set of ``get_dataset``: two partitions, of 3 rows and the rest."""
    schema = Columns(
        columns=tuple(Column(dtype="<f8", row_shape=column.shape[1:]) for column in columns),
        names=names,
        is_tuple=names is None,
    )
    futures = tuple(Partition(at, *[column[at : at + 3 + at] for column in columns]) for at in (0, 3))
    lengths = np.array([3, len(columns[0]) - 3])
    return SimpleNamespace(segments=SharedSegments(schema=schema, lengths=lengths, futures=futures))


@pytest.mark.parametrize(
    ("data", "named", "weighs"),
    [
        (published(ROWS[:6, :2], ROWS[:6, 2]), {}, False),
        (published(ROWS[:6, :2], ROWS[:6, 2], abs(ROWS[:6, 3])), {}, True),
        (
            published(abs(ROWS[:6, 3]), ROWS[:6, :2], ROWS[:6, 2], names=("w", "features", "target")),
            {"features": "features", "label": "target", "sample_weight": "w"},
            True,
        ),
    ],
)
def test_a_data_set_has_its_own_targets_and_weights(data, named, weighs) -> None:
    model = LinearRegression().fit(ROWS[:, :2], ROWS[:, 2])
    weight = abs(ROWS[:6, 3]) if weighs else None
    expected = model.score(ROWS[:6, :2], ROWS[:6, 2], weight)
    assert dt.evaluate(model, data, **named, verbose=0)["r2"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("columns", [(ROWS,), (ROWS[:, :2], ROWS[:, 2], ROWS[:, 3], ROWS[:, 1])])
def test_a_data_set_that_is_not_rows_with_targets_is_refused(columns) -> None:
    with pytest.raises(ValueError, match=r"matrix of features and a column of targets|Publish it as"):
        dt.evaluate(LinearRegression().fit(ROWS[:, :2], ROWS[:, 2]), published(*columns), verbose=0)


def test_a_data_set_has_the_columns_that_the_model_was_fitted_with_in_their_order() -> None:
    model = LinearRegression().fit(ROWS[:, :2], ROWS[:, 2])
    data = published(ROWS[:6, :2], ROWS[:6, 2])
    schemas = [FrameSchema.of(pd.DataFrame({name: [0.0] for name in names})) for names in ("ab", "ba")]
    data.segments = replace(data.segments, frames=(schemas[0], None))
    assert dt.evaluate(model, data, schema=schemas[0], verbose=0) == dt.evaluate(model, data, verbose=0)
    with pytest.raises(ValueError, match=r"the columns 'a', 'b', in this order, and .* fitted with 'b', 'a'"):
        dt.evaluate(model, data, schema=schemas[1], verbose=0)
