"""The rows of a search as estimators take them: features and targets by the numbers of rows. Knows nothing of Dask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dask_train.collections.missing import with_nan_text
from dask_train.data.columns import Column, Columns
from dask_train.role.rows_by_number import RowsByNumber
from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.missing_text import is_text, unmarked


class FoldRows(NamedTuple):
    """Some rows: features, and targets and weights, each None if there are none."""

    X: Any
    y: Any
    weight: Any

    @classmethod
    def of(cls, columns: Columns, arrays: Sequence[np.ndarray]) -> FoldRows:
        """Return the rows of a batch as estimators take them."""
        features, labels, weights = columns.pack(arrays)
        if isinstance(columns.labels, int):
            labels = decoded("y", labels, columns[columns.labels])
        return cls(features_of(columns, features), labels, weights)


def features_of(columns: Columns, features: Any) -> Any:
    """Return a matrix as it is, and a frame of pandas for the columns of one."""
    if not isinstance(features, Mapping):
        return features
    import pandas as pd

    origins = {name: columns[number].origins[0] for name, number in columns.features.items()}
    return pd.DataFrame({name: _series(features[name], origin.dtype) for name, origin in origins.items()})


@dataclass(frozen=True)
class RowTable:
    """Rows by their numbers, which their user may write to."""

    rows: RowsByNumber
    columns: Columns

    def take(self, numbers: np.ndarray) -> FoldRows:
        """Return rows by their numbers: one copy."""
        return FoldRows.of(self.columns, self.rows.take(numbers))

    @contextmanager
    def fold(self, split: Split) -> Iterator[tuple[FoldRows, FoldRows]]:
        """Open the rows of a fold to train on, and those to test on; all of them may be written to.

        The data set is in shared memory once a host. Rows to train on are copied, once a fold for all candidates of a
        first step: they lie on both sides of those to test on, and in several partitions, and estimators take one
        array. Those to test on are views where they are consecutive rows of one partition on this host, and an array:
        pandas makes copies for a frame. What is written to views is forgotten at the end, and no other process sees
        it.
        """
        tested = split.test
        consecutive = len(tested) > 0 and bool((np.diff(tested) == 1).all())
        with self.rows.lent(int(tested[0]), len(tested)) if consecutive else nullcontext(None) as lent:
            yield self.take(split.train), self.take(tested) if lent is None else FoldRows.of(self.columns, lent)

    def all(self) -> FoldRows:
        """Return all rows: one copy."""
        return self.take(np.arange(len(self.rows)))


def decoded(what: str, values: np.ndarray, column: Column) -> np.ndarray:
    """Return the categories that codes stand for; values as they are where there are no categories.

    Raises
    ------
    ValueError
        One is missing.
    """
    if column.categories is None:
        return values
    if missing := int((values < 0).sum()):
        raise ValueError(f"{what} has {missing} rows without a category. Fill them in, or leave these rows out.")
    categories: np.ndarray = np.asarray(column.categories[0])[values]
    return categories


def _series(values: np.ndarray, dtype: Any) -> Any:
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Categorical.from_codes(values.astype(np.int64), dtype=dtype)
    if is_text(dtype) and values.dtype == object:
        return with_nan_text(pd.Series(unmarked(values), dtype=object).astype(dtype))
    return pd.Series(values).astype(dtype)
