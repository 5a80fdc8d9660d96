"""What users of ``fit`` pass for inputs, targets and weights, as one data set and what its columns mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_train.cluster.published import as_source
from dask_train.cluster.shared_segments import SharedSegments, segments_in
from dask_train.collections.source import Source
from dask_train.data.columns import Schema
from dask_train.fit_roles.layout import Layout

# The shape and the dtype of a row.
Row = tuple[tuple[int, ...], np.dtype]


@dataclass(frozen=True, kw_only=True)
class FitData:
    """One data set of a call of ``fit``.

    Attributes
    ----------
    value, features, label
        As ``train`` takes ``data=``.
    layout
        What the columns of a batch mean to Keras.
    rows
        Shape and dtype of a row of each column; None where only computing tells.
    """

    value: Any
    layout: Layout
    features: str | Sequence[str] | None = None
    label: str | None = None
    rows: tuple[Row, ...] | None = None

    def source(self, what: str) -> Source | SharedSegments:
        """It as a run takes it; see :func:`dask_train.cluster.published.as_source`."""
        return as_source(what, self.value, features=self.features, label=self.label)


def fit_data(
    what: str,
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
) -> FitData:
    """Inputs, targets and weights as one data set; nothing is computed.

    Raises
    ------
    TypeError, ValueError
        They can't be put together.
    """
    if x is None:
        raise ValueError(f"{what}: there are no inputs. Pass arrays, a frame, or a data set of dt.get_dataset(name).")
    if features is not None or label is not None:
        if y is not None or sample_weight is not None:
            raise ValueError(f"{what}: features= and label= choose columns of a frame; leave y and sample_weight out.")
        layout = Layout.of_batch(1 if label is None else 2)
        return FitData(value=x, layout=layout, features=features, label=label)
    if (segments := segments_in(x)) is not None:
        return _published(what, x, segments.schema, [y, sample_weight])
    layout, columns = Layout.of(x, y, sample_weight)
    return FitData(value=columns, layout=layout, rows=_rows(columns))


def _published(what: str, x: Any, schema: Schema, others: list[Any]) -> FitData:
    if any(other is not None for other in others):
        raise ValueError(f"{what}: a published data set has inputs, targets and weights together. Pass it alone.")
    rows = rows_of(schema)
    if schema.names is not None:
        known = ", ".join(schema.names)
        names = {name: number for number, name in enumerate(schema.names)}
        if not {"x", "y"} >= set(names) - {"sample_weight"}:
            raise ValueError(
                f"{what}: the columns of that data set are {known}; which of them are inputs is not told. Publish "
                "it as (X, y), or (X, y, sample_weight)."
            )
        return FitData(value=x, layout=Layout(**names), rows=rows)
    if len(schema.columns) > 3:
        raise ValueError(f"{what}: that data set has {len(schema.columns)} columns. Publish it as (X, y).")
    return FitData(value=x, layout=Layout.of_batch(len(schema.columns)), rows=rows)


def _rows(columns: Sequence[Any]) -> tuple[Row, ...] | None:
    arrays = [column for column in columns if hasattr(column, "shape") and hasattr(column, "dtype")]
    if len(arrays) < len(columns):
        return None
    found = [(tuple(array.shape[1:]), np.dtype(array.dtype)) for array in arrays]
    return None if any(isinstance(size, float) for shape, _ in found for size in shape) else tuple(found)


def validation_of(value: Any, features: Any, label: Any) -> FitData:
    """What ``validation_data=`` was given: a tuple of inputs, targets and perhaps weights; or a frame, a data set."""
    if isinstance(value, tuple | list) and 2 <= len(value) <= 3:
        x, y, *weights = value
        return fit_data("validation_data", x, y, *weights or [None])
    return fit_data("validation_data", value, None, None, features=features, label=label)


def rows_of(schema: Schema) -> tuple[Row, ...]:
    """Shape and dtype of a row of each column."""
    return tuple((column.row_shape, np.dtype(column.dtype)) for column in schema.columns)


def split_off(data: FitData, fraction: Any) -> tuple[FitData, FitData]:
    """The first rows to train on, and the last ``fraction`` of them to validate on, as Keras splits arrays.

    Raises
    ------
    ValueError
        The fraction is not between 0 and 1, or the number of rows is not known.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
        raise ValueError(f"validation_split is {fraction!r}; it is a fraction between 0 and 1.")
    lengths = [
        len(column) if isinstance(column, np.ndarray) else getattr(column, "shape", (np.nan,))[0]
        for column in (data.value if isinstance(data.value, tuple) else ())
    ]
    if not lengths or data.rows is None or any(not isinstance(length, int | np.integer) for length in lengths):
        raise ValueError(
            "validation_split needs arrays whose number of rows is known. Pass validation_data, or call "
            "compute_chunk_sizes() on Dask arrays first."
        )
    at = math.floor(lengths[0] * (1.0 - fraction))
    if not 0 < at < lengths[0]:
        raise ValueError(f"validation_split={fraction!r} of {lengths[0]} rows leaves one side without rows.")
    return (
        replace(data, value=tuple(column[:at] for column in data.value)),
        replace(data, value=tuple(column[at:] for column in data.value)),
    )
