"""The rows of a search as estimators take them: features and targets by the numbers of rows. Knows nothing of Dask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dask_train.collections.missing import with_nan_text
from dask_train.data.columns import Columns
from dask_train.data.structure import filled
from dask_train.role.rows_by_number import RowsByNumber
from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.missing_text import is_text, unmarked


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the columns of a data set mean.

    Attributes
    ----------
    columns
        Where features, targets and weights lie.
    dtypes
        Of a frame's columns by name, where the features are one; else None.
    target_dtype
        Of targets that are categories, which lie as codes; else None.
    groups, group_dtype
        Where the groups of rows lie, and their type where they are categories; None where there are none.
    """

    columns: Columns
    dtypes: Mapping[Any, Any] | None = None
    target_dtype: Any = None
    groups: int | None = None
    group_dtype: Any = None

    def features(self, columns: Sequence[np.ndarray]) -> Any:
        """A matrix, or a pandas frame."""
        found = filled(self.columns.features, columns.__getitem__)
        if self.dtypes is None:
            return found
        import pandas as pd

        return pd.DataFrame({name: _series(found[name], dtype) for name, dtype in self.dtypes.items()})

    def targets(self, columns: Sequence[np.ndarray]) -> Any:
        """Targets as NumPy has them; None where there are none."""
        found = filled(self.columns.labels, columns.__getitem__)
        return found if found is None else decoded("y", found, self.target_dtype)

    def weights(self, columns: Sequence[np.ndarray]) -> Any:
        """The weight of each row; None where there are none."""
        return filled(self.columns.weights, columns.__getitem__)


class Part(NamedTuple):
    """Some rows: features, and targets and weights, each None where there are none."""

    X: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class Table:
    """Rows by their numbers, which their user may write to."""

    rows: RowsByNumber
    shape: Shape

    def take(self, numbers: np.ndarray) -> Part:
        """Rows by their numbers: one copy."""
        return self._part(self.rows.take(numbers))

    @contextmanager
    def fold(self, split: Split) -> Iterator[tuple[Part, Part]]:
        """The rows of a fold to train on, and those to test on; all of them may be written to.

        The data set is in shared memory once a host. Rows to train on are copied, once a fold for all candidates of a
        first step: they lie on both sides of those to test on, and in several partitions, and estimators take one
        array. Those to test on are views where they are consecutive rows of one partition on this host, and an array:
        pandas makes copies for a frame. What is written to views is forgotten at the end, and no other process sees
        it.
        """
        tested = split.test
        consecutive = len(tested) > 0 and bool((np.diff(tested) == 1).all())
        with self.rows.lent(int(tested[0]), len(tested)) if consecutive else nullcontext(None) as columns:
            yield self.take(split.train), self.take(tested) if columns is None else self._part(columns)

    def _part(self, columns: Sequence[np.ndarray]) -> Part:
        shape = self.shape
        return Part(shape.features(columns), shape.targets(columns), shape.weights(columns))

    def all(self) -> Part:
        """All rows: one copy."""
        return self.take(np.arange(len(self.rows)))


def decoded(what: str, values: np.ndarray, dtype: Any) -> np.ndarray:
    """The categories that codes stand for; values as they are where there are no categories.

    Raises
    ------
    ValueError
        One is missing.
    """
    if dtype is None:
        return values
    if missing := int((values < 0).sum()):
        raise ValueError(f"{what} has {missing} rows without a category. Fill them in, or leave these rows out.")
    found: np.ndarray = np.asarray(dtype.categories)[values]
    return found


def _series(values: np.ndarray, dtype: Any) -> Any:
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Categorical.from_codes(values.astype(np.int64), dtype=dtype)
    if is_text(dtype) and values.dtype == object:
        return with_nan_text(pd.Series(unmarked(values), dtype=object).astype(dtype))
    return pd.Series(values).astype(dtype)
