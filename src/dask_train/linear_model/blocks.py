"""Predictions and scores of Dask collections, a block of rows at a time where it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_train.cluster import submitted
from dask_train.collections.blocks import check_unmasked
from dask_train.linear_model.rows import check_finite

OfBlock = Callable[[Any], np.ndarray]


class Prediction:
    """What a fitted model makes of a block of rows; picklable, without the estimator.

    Parameters
    ----------
    coef, intercept
        The model's.
    then
        What is made of the predictions before the link.
    """

    def __init__(self, coef: np.ndarray, intercept: Any, then: Callable[[np.ndarray], np.ndarray]) -> None:
        self._coef, self._intercept, self._then = coef, intercept, then

    def __call__(self, x: Any) -> np.ndarray:
        check_unmasked("A block of X", x)
        if not hasattr(x, "tocsr"):
            x = np.asarray(x, np.float64)
        check_finite("X", x)
        return self._then(x @ self._coef.T + self._intercept)

    def __dask_tokenize__(self) -> Any:
        """Equal models make equal collections."""
        return type(self).__name__, self._coef, self._intercept, self._then


def by_block(predict: OfBlock, X: da.Array, width: int, dtype: Any) -> da.Array:
    """Lazily what is made of each block: ``(n,)``, or ``(n, width)`` where that is not 0, in the chunks of X."""
    chunks = (X.chunks[0], (width,)) if width else (X.chunks[0],)
    meta = np.empty((0,) * len(chunks), dtype)
    settings: dict[str, Any] = {"chunks": chunks} if width else {"drop_axis": 1}
    return X.map_blocks(predict, dtype=dtype, meta=meta, name=f"linear-{dask.base.tokenize(predict, X)}", **settings)


def over_blocks(function: Callable[..., Any], *columns: da.Array) -> list[np.ndarray]:
    """Return what a function makes of each block that has rows, computed where they lie: small arrays."""
    blocks = [column.to_delayed().ravel() for column in columns]
    lengths = columns[0].chunks[0]
    make = dask.delayed(function, pure=False)
    block_results = [make(*parts) for parts, rows in zip(zip(*blocks, strict=True), lengths, strict=True) if rows]
    return list(submitted.computed(block_results))
