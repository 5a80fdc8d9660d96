"""Dask collections as estimators take them: arrays of rows, whose features are those of fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import type_of_target

from dask_train.cluster.submitted import computed
from dask_train.collections.blocks import check_unmasked, delayed_blocks
from dask_train.collections.frames import arrays_of_parts, check_one_origin
from dask_train.collections.partition.form import is_frame
from dask_train.collections.partition.part import check_same_index
from dask_train.collections.shared import decoded, origin_of
from dask_train.collections.source import Source
from dask_train.compat.dask import meta_of
from dask_train.data.one_hot import OneHot
from dask_train.input_errors import warn_at_the_call
from dask_train.linear_model.checks import sorting_labels
from dask_train.linear_model.collections import check_names, is_dask, is_number, plain_dtypes
from dask_train.linear_model.columns import computed_here, computed_in_shared_memory, together
from dask_train.shared_data.parts import PART
from dask_train.shared_data.published import as_source

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def check_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Note how many features a collection has, and their names; or see that they are those of before.

    Raises
    ------
    ValueError
        They are others, or it is no matrix.
    """
    if getattr(X, "ndim", 2) != 2:
        raise ValueError(f"X has {X.ndim} dimensions. Reshape your data: it is a matrix, (rows, features).")
    check_names(estimator, X, reset=reset)


def as_features(rows: Any) -> Any:
    """Features of a collection as an array that a network takes.

    Raises
    ------
    ValueError
        Its partitions are sparse, or complex.
    """
    array = as_array(rows)
    if array.dtype.kind == "c":
        raise ValueError(f"X has the dtype {array.dtype}, and a network takes real numbers. Make such of it.")
    return array


def as_array(rows: Any) -> Any:
    """Return the rows of a collection as a Dask array, whose number may be unknown; of anything else as a NumPy array.

    Raises
    ------
    ValueError
        They are sparse, or of a frame whose columns make no array together.
    """
    check_unmasked("X or y", rows)
    if issparse(rows):
        raise ValueError("X is sparse, and is taken as a dense array here: X.toarray().")
    if hasattr(rows, "columns") and getattr(rows, "ndim", 0) == 2:
        _check_alike(rows)
    if not dask.is_dask_collection(rows):
        return np.asarray(rows)
    array = plain_dtypes(rows).to_dask_array() if hasattr(rows, "to_dask_array") else rows
    if issparse(meta_from_array(array)):
        raise ValueError(
            "X has sparse partitions, and they are taken as dense ones here: "
            "X.map_blocks(lambda x: x.toarray(), dtype=X.dtype)."
        )
    return array


def _check_alike(frame: Any) -> None:
    """Refuse a mix of columns of numbers and other columns: an array of both would hold objects."""
    others = [name for name, dtype in frame.dtypes.items() if not is_number(dtype)]
    if others and len(others) < len(frame.columns):
        raise ValueError(
            f"Column {others[0]!r} of X has the dtype {frame.dtypes[others[0]]}, beside columns of numbers: they make "
            "no array together. Leave it out, or make numbers of it."
        )


def rows_together(X: Any, y: Any, weight: Any = None) -> tuple[Any, Any, Any]:
    """Frames of Dask that were cut from one as arrays, lazily, each partition computed once; all else as it is.

    Dask would make an array of each by itself, and compute the partitions of the whole frame for each. Frames with rows
    of different indexes raise a ValueError when they are computed.
    """
    several = [X, y, weight]
    places = [place for place, each in enumerate(several) if is_dask(each) and hasattr(each, "to_dask_array")]
    if len(places) < 2:
        return X, y, weight
    frames = [several[place] for place in places]
    check_one_origin("The data", frames)
    if frames[0] is X:
        _check_alike(X)
    source = as_source("the data", tuple(plain_dtypes(each) for each in frames))
    if not isinstance(source, Source) or source.columns is None:
        import dask.dataframe as dd

        # One is always computed: that looks at the indexes of all.
        several[places[0]] = dd.map_partitions(_of_same_index, *frames, meta=meta_of(frames[0]))
    else:
        arrays = arrays_of_parts(source.delayed_parts(PART, list), source.columns)
        for place, array in zip(places, arrays, strict=True):
            several[place] = array
    return several[0], several[1], several[2]


def _of_same_index(*pieces: Any) -> Any:
    check_same_index("the data", pieces)
    return pieces[0]


def beside(predicted: Any, y: Any, weight: Any = None) -> list[Any]:
    """Predictions, targets and perhaps weights as Dask arrays of the same rows, in blocks that go together.

    Raises
    ------
    ValueError
        They have different numbers of rows, or of numbers of each.
    """
    several = [predicted, targets(y)] + ([] if weight is None else [targets(weight)])
    for what, each, wanted in zip(("y", "sample_weight"), several[1:], (predicted.shape[1:], ()), strict=False):
        if each.shape[1:] != wanted:
            raise ValueError(f"{what} has rows of shape {each.shape[1:]}, and {wanted or 'one number each'} is wanted.")
    unknown = [bool(np.isnan(each.shape[0])) for each in several]
    if any(unknown) and not (all(unknown) and len({each.numblocks[0] for each in several}) == 1):
        counted = iter(_of_known_length([each for each, odd in zip(several, unknown, strict=True) if odd]))
        several = [next(counted) if odd else each for each, odd in zip(several, unknown, strict=True)]
        unknown = []
    if not any(unknown) and len(rows := {each.shape[0] for each in several}) > 1:
        raise ValueError(f"There are {' and '.join(map(str, sorted(rows)))} rows; pass as many of each.")
    blocks = several[0].chunks[0]
    return [each if is_dask(each) else da.from_array(each, chunks=(blocks, *each.shape[1:])) for each in several]


def _of_known_length(arrays: Sequence[da.Array]) -> list[da.Array]:
    """Return arrays of unknown length whose blocks are counted; what they share is computed once for all of them."""
    rows = [
        several[:: len(several) // each.numblocks[0]]
        for each, several in zip(arrays, delayed_blocks(arrays), strict=True)
    ]
    counts = iter(computed([dask.delayed(len)(block) for blocks in rows for block in blocks]))
    found = []
    for each in arrays:
        lengths = tuple(next(counts) for _ in range(each.numblocks[0]))
        meta = meta_from_array(each)
        found.append(da.Array(each.__dask_graph__(), each.name, (lengths, *each.chunks[1:]), each.dtype, meta))
    return found


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


def warn_of_a_column_vector(y: Any) -> None:
    """Warn as scikit-learn does of a matrix with one column in the place of targets ``(n,)``."""
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        warn_at_the_call(
            "A column-vector y was passed when a 1d array was expected. Pass y[:, 0], or the column itself.",
            DataConversionWarning,
        )


def numbers_of(objects: Any) -> Any:
    """Return an array of objects as float64, as scikit-learn does; one with text, or of another type, as it is.

    Raises
    ------
    TypeError
        An object is neither text nor a number.
    """
    if is_dask(objects) or objects.dtype.kind != "O" or any(isinstance(each, str) for each in objects.flat):
        return objects
    return objects.astype(np.float64)


def one_column(y: Any) -> Any:
    """Return the only column of a frame, as a column; all else as it is."""
    return y[y.columns[0]] if is_frame(y) and len(y.columns) == 1 else y


def classes_of(y: Any) -> np.ndarray:
    """Return the sorted labels of an array, of Dask's block by block: only the distinct ones come here.

    Raises
    ------
    ValueError
        They are no labels of classes.
    """
    _check_one_label(y)
    with sorting_labels():
        blocks = y.to_delayed().ravel() if is_dask(y) else [y]
        block_labels = computed([dask.delayed(np.unique)(block) for block in blocks])
        classes = np.unique(
            np.concatenate([labels for labels in block_labels if len(labels)] or [np.array([], y.dtype)])
        )
    with np.errstate(invalid="ignore"):  # NaN is reported by an error
        kind = type_of_target(classes) if len(classes) else "binary"
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: {kind}. Only binary and multiclass target types are supported.")
    return classes


def one_hot(y: Any, classes: np.ndarray) -> Any:
    """Return a column of 0 and 1 for each class, float64 ``(n, classes)``; lazily of a Dask array, in its blocks.

    Of labels in shared memory, as :func:`rows_once` gives them, workers of ``dt.fit`` make them batch by batch.
    """
    decoder = OneHot.of(classes)
    if not is_dask(y):
        return _encoded(y, decoder)
    if origin_of(y) is not None:
        return decoded(y, decoder)
    return y.map_blocks(_encoded, decoder, dtype=decoder.dtype, chunks=(y.chunks[0], decoder.row_shape), new_axis=1)


def _encoded(block: np.ndarray, decoder: OneHot) -> np.ndarray:
    encoded = np.empty((len(block), *decoder.row_shape), decoder.dtype)
    decoder.opened().write(encoded, block)
    return encoded


def rows_once(columns: Sequence[Any], client: Client | None, workers: int | None) -> tuple[Any, ...]:
    """Compute features, labels and perhaps weights for an estimator that reads labels first, each partition once.

    Parameters
    ----------
    columns
        Arrays, of Dask or NumPy; labels are Dask's.
    client
        Whose Dask workers hold the rows then.
    workers
        With 0 they are computed into this process.

    Returns
    -------
    Dask arrays on shared memory, or NumPy arrays.

    Raises
    ------
    ValueError, DataError
        They have different numbers of rows, or several labels a row, or a partition can't be computed.
    """
    compute = computed_here if workers == 0 else partial(computed_in_shared_memory, client=client)
    X, y, *weights = columns
    _check_one_label(y)
    y = y.map_blocks(_plain, y.dtype, dtype=y.dtype) if y.dtype.kind in "OU" else y
    named = {"X": X, "y": y} | dict(zip(("sample_weight",), weights, strict=False))
    return compute(together(named, compute))


def _check_one_label(y: Any) -> None:
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; a classifier takes a label a row, (rows,).")


def _plain(labels: np.ndarray, dtype: Any) -> np.ndarray:
    """Return labels as shared memory takes them: objects as the numbers that they are, text as wide as Dask has it."""
    if labels.dtype.kind == "U" and np.can_cast(labels.dtype, dtype, "safe"):
        return labels.astype(dtype)
    if labels.dtype.kind != "O" or any(isinstance(each, str) for each in labels):
        return labels
    numbers = np.array(labels.tolist())
    return numbers if numbers.dtype.kind in "biuf" else labels
