"""Dask collections as estimators take them: arrays of rows, whose features are those of fit."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from scipy.sparse import issparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import validate_data

from dask_train.linear_model.checks import sorting_labels
from dask_train.linear_model.collections import plain_dtypes


def is_dask(*given: Any) -> bool:
    """Whether one of them is a Dask collection."""
    return any(dask.is_dask_collection(each) for each in given)


def check_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Note how many features a collection has, and their names; or see that they are those of before.

    Raises
    ------
    ValueError
        They are others, or it is no matrix.
    """
    if getattr(X, "ndim", 2) != 2:
        raise ValueError(f"X has {X.ndim} dimensions. Reshape your data: it is a matrix, (rows, features).")
    if hasattr(X, "columns"):
        import pandas as pd

        X = pd.DataFrame(columns=X.columns)  # scikit-learn looks at the names
    validate_data(estimator, X, reset=reset, skip_check_array=True)


def as_features(given: Any) -> Any:
    """Features of a collection as an array that a network takes.

    Raises
    ------
    ValueError
        Its partitions are sparse, or complex.
    """
    found = as_array(given)
    if is_dask(found) and issparse(meta_from_array(found)):
        raise ValueError(
            "X has sparse partitions, and a network takes dense ones: X.map_blocks(lambda x: x.toarray())."
        )
    if found.dtype.kind == "c":
        raise ValueError(f"X has the dtype {found.dtype}, and a network takes real numbers. Make such of it.")
    return found


def as_array(given: Any) -> Any:
    """The rows of a collection as a Dask array, whose number may be unknown; of anything else as a NumPy array."""
    if not dask.is_dask_collection(given):
        return np.asarray(given)
    return plain_dtypes(given).to_dask_array() if hasattr(given, "to_dask_array") else given


def beside(given: Any, array: Any) -> Any:
    """Rows of anything as a Dask array in the blocks of another one.

    Raises
    ------
    ValueError
        They have different numbers of rows, or blocks that can't be told.
    """
    given = as_array(given)
    if any(np.isnan(size) for size in array.chunks[0]) and (
        not dask.is_dask_collection(given) or given.numblocks[0] != array.numblocks[0]
    ):
        array = array.compute_chunk_sizes()
    if not dask.is_dask_collection(given):
        if len(given) != len(array):
            raise ValueError(f"There are {len(array)} and {len(given)} rows; pass as many of each.")
        return da.from_array(given, chunks=(array.chunks[0], *given.shape[1:]))
    return given


def targets(y: Any) -> Any:
    """Targets of a collection as an array, ``(n,)`` or ``(n, targets)``; a single column is one target.

    Raises
    ------
    ValueError
        They have more dimensions.
    """
    y = as_array(y)
    if y.ndim > 2 or y.ndim == 0:
        raise ValueError(f"y has {y.ndim} dimensions; it is (rows,) or (rows, targets).")
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def classes_of(y: Any) -> np.ndarray:
    """The sorted labels of a Dask array, found block by block: only the distinct ones come here.

    Raises
    ------
    ValueError
        They are no labels of classes.
    """
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; a classifier takes a label a row, (rows,).")
    with sorting_labels():
        found = dask.compute(*(dask.delayed(np.unique)(block) for block in y.to_delayed().ravel()))
        classes = np.unique(np.concatenate([labels for labels in found if len(labels)] or [np.array([], y.dtype)]))
    kind = type_of_target(classes) if len(classes) else "binary"
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"Only binary and multiclass target types are supported. Target type: {kind}")
    return classes


def one_hot(y: Any, classes: np.ndarray) -> Any:
    """A column of 0 and 1 for each class, float64 ``(n, classes)``; lazily of a Dask array, in its blocks."""
    num = len(classes)
    if not is_dask(y):
        return _encoded(y, classes)
    return y.map_blocks(_encoded, classes, dtype=float, chunks=(y.chunks[0], (num,)), new_axis=1)


def _encoded(block: np.ndarray, classes: np.ndarray) -> np.ndarray:
    numbers = np.clip(np.searchsorted(classes, block), 0, len(classes) - 1)
    if (classes[numbers] != block).any():
        raise ValueError("y has other labels now than when its classes were found: it gives other rows each time.")
    encoded: np.ndarray = np.eye(len(classes))[numbers]
    return encoded
