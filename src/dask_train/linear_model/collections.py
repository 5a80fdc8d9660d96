"""Dask collections as the data of a run that fits a linear model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from dask_train.cluster.in_tasks import is_in_task
from dask_train.collections.blocks import array_of_views, check_unmasked
from dask_train.collections.partition.kinds import ways_to_categories


def is_dask(*values: Any) -> bool:
    """Return whether one of them is a Dask collection."""
    return any(dask.is_dask_collection(each) for each in values)


def check_text_columns(X: Any) -> None:
    """Check that a frame of pandas has no columns of text.

    Raises
    ------
    ValueError
        It has some; the message names the first.
    """
    from pandas.api.types import infer_dtype

    for name, dtype in X.dtypes.items():
        if not is_number(dtype) and infer_dtype(X[name]) == "string":
            raise ValueError(_no_numbers(name, dtype, f"frame.astype({{{name!r}: 'category'}})"))


def _no_numbers(name: Any, dtype: Any, mended: str) -> str:
    return (
        f"Column {name!r} of X has the dtype {dtype}, and a linear model takes numbers and categories. Make "
        f"categories of it before X and y are cut from the frame, with {mended}; each becomes an indicator. Or make "
        "numbers of it, or leave it out."
    )


def as_array(name: str, values: Any) -> Any:
    """Return a Dask array of a collection, lazily, or of what NumPy takes; rows are whole, in one chunk.

    Raises
    ------
    TypeError
        It is masked; the message calls it ``name``.
    """
    check_unmasked(name, values)
    if hasattr(values, "to_dask_array"):
        values = plain_dtypes(values).to_dask_array()
    if not dask.is_dask_collection(values):
        if issparse(values):
            return array_of_views(values)
        values = np.asarray(values)
        return da.from_array(values, chunks=("auto", *values.shape[1:]), asarray=False)
    return values.rechunk({1: -1}) if values.ndim == 2 and values.numblocks[1] > 1 else values


def as_features(features: Any) -> Any:
    """Features of a collection as numbers: a frame as it is, an array with its rows whole.

    Raises
    ------
    ValueError
        A column, or the array, has no real numbers; or it is a list of collections.
    """
    if isinstance(features, list | tuple) and is_dask(*features):
        raise ValueError(
            "X is a list of Dask collections, whose rows are not one matrix yet. Make one of it: "
            "dask.array.concatenate(X) of arrays, dask.dataframe.from_delayed(X) of delayed frames."
        )
    if dask.is_dask_collection(features) and hasattr(features, "columns"):
        for name, dtype in features.dtypes.items():
            if not is_number(dtype):
                raise ValueError(_no_numbers(name, dtype, ways_to_categories(name)))
        truths = {name: "float64" for name, dtype in features.dtypes.items() if dtype.kind == "b"}
        return features.astype(truths) if truths else features
    array = as_array("X", features)
    if array.dtype.kind not in "biufO":
        raise ValueError(f"X has the dtype {array.dtype}, and a linear model takes real numbers. Make such of it.")
    return array.astype(np.float64) if array.dtype.kind == "O" else array


def check_names(estimator: Any, X: Any, *, reset: bool) -> None:
    """Note how many features a collection has, and their names; or see that they are those of before.

    Raises
    ------
    ValueError
        They are others.
    """
    if hasattr(X, "columns"):
        import pandas as pd

        X = pd.DataFrame(columns=X.columns)  # scikit-learn looks at the names
    validate_data(estimator, X, reset=reset, skip_check_array=True)


def check_waits(client: Any) -> None:
    """Check that a client is not asynchronous, as an estimator's ``fit`` waits; unless a Dask task calls.

    Raises
    ------
    ValueError
        It is.
    """
    if client is not None and client.asynchronous and not is_in_task():
        raise ValueError(
            "An estimator's fit waits, and this client is asynchronous. Call it in a thread with a client of its own: "
            "distributed.Client(address)."
        )


def plain_dtypes(frame: Any) -> Any:
    """Return a frame or column of NumPy's dtypes: numbers of pandas' own as floats, of which missing ones are NaN.

    Raises
    ------
    ValueError
        An integer has more digits than a float; of Dask, in the task.
    """
    dtypes = {frame.name: frame.dtype} if frame.ndim == 1 else dict(frame.dtypes.items())
    odd = {name: "float64" if is_number(dtype) else object for name, dtype in dtypes.items() if is_extension(dtype)}
    if not odd:
        return frame
    if wide := [name for name in odd if dtypes[name].kind in "iu" and dtypes[name].itemsize == 8]:
        is_lazy = dask.is_dask_collection(frame)
        frame = frame.map_partitions(_exact_in_floats, wide) if is_lazy else _exact_in_floats(frame, wide)
    return frame.astype(odd if frame.ndim == 2 else odd[frame.name])


def is_extension(dtype: Any) -> bool:
    """Return whether a dtype is one of pandas', not NumPy's."""
    return not isinstance(dtype, np.dtype)


def is_number(dtype: Any) -> bool:
    """Return whether a column of that dtype has numbers or truth values.

    Arrow's, which pandas calls no numbers, too.
    """
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(dtype) or (is_extension(dtype) and dtype.kind == "b")


def _exact_in_floats(frame: Any, names: Sequence[Any]) -> Any:
    for name in names:
        column = frame if frame.ndim == 1 else frame[name]
        if (np.abs(column.to_numpy(dtype="f8", na_value=np.nan)) >= 2.0**53).any():
            raise ValueError(
                f"Column {name!r} is {column.dtype} with numbers beyond 53 bits, which float64 would round. Leave it "
                "out, or make categories of it."
            )
    return frame


def check_rows_unmasked(X: Any, y: Any = None, sample_weight: Any = None) -> None:
    """Check that no array has a mask, as far as that is known before it is computed.

    Raises
    ------
    TypeError
        One has.
    """
    for name, array in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        check_unmasked(name, array)


def check_is_matrix(X: Any) -> None:
    """Check that features have two dimensions.

    Raises
    ------
    ValueError
        They have not.
    """
    if X.ndim != 2:
        raise ValueError(
            f"X has the shape {X.shape}; a matrix has two dimensions, a row each. Of one feature pass X[:, None]."
        )
