"""Predictions with the paths of their files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from dask import delayed

from dask_train.file_rows.reading import unpacked_paths
from dask_train.file_rows.source import packed_paths


def with_paths(paths: Sequence[str], predicted: Any, classes: Sequence[str] | None, *, are_named: bool) -> Any:
    """Return predictions as a Dask frame whose index is paths.

    Parameters
    ----------
    paths
        Of the files, in the order of the predictions.
    predicted
        A Dask or NumPy array, ``(n,)`` or ``(n, width)``.
    classes
        Names of the columns.
    are_named
        Whether the user has named them.

    Raises
    ------
    TypeError, ValueError
        Predictions don't fit the paths, or the names don't fit the predictions.
    """
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    if not isinstance(predicted, da.Array | np.ndarray):
        raise TypeError(f"predicted is a {type(predicted).__name__}; pass the array that dt.predict has made.")
    if predicted.ndim > 2 or len(predicted) != len(paths):
        raise ValueError(
            f"predicted has the shape {predicted.shape}, and there are {len(paths):,} files. Pass predictions of these "
            "files, (n,) or (n, width)."
        )
    array = da.asarray(predicted)
    matrix = array.reshape(len(paths), 1) if array.ndim == 1 else array.rechunk({1: -1})
    names = _names(matrix.shape[1], classes, are_named=are_named)
    bounds = np.cumsum([0, *matrix.chunks[0]]).tolist()
    make = delayed(_frame, pure=True)
    parts = [
        make(block, packed_paths(paths[start:stop]), names)
        for block, (start, stop) in zip(matrix.to_delayed().ravel(), pairwise(bounds), strict=True)
    ]
    meta = pd.DataFrame(np.empty((0, len(names)), array.dtype), pd.Index([], dtype=object, name="path"), names)
    return dd.from_delayed(parts, meta=meta)  # without the check of meta Dask could make no array of it


def _names(width: int, classes: Sequence[str] | None, *, are_named: bool) -> list[Any]:
    if classes is not None and len(classes) == width:
        return list(classes)
    if are_named:
        raise ValueError(f"classes has {len(classes or ())} names, and predictions have {width} columns.")
    return ["prediction"] if width == 1 else list(range(width))


def _frame(block: np.ndarray, packed: bytes, names: list[Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(block, pd.Index(unpacked_paths(packed), dtype=object, name="path"), names)
