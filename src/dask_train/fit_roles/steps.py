"""The functions that ``fit`` calls for each batch, in place of Keras' own: they take batches from the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from dask_train.data.columns import Column
from dask_train.errors import DataError
from dask_train.fit_roles.backends import Backend
from dask_train.fit_roles.gradients import Share
from dask_train.fit_roles.layout import Layout
from dask_train.fit_roles.metrics import Metrics
from dask_train.fit_roles.weights import Weights
from dask_train.session import Session


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What the parts of one worker have in common; with no ``weights`` where it waits for nobody in its steps."""

    session: Session
    backend: Backend
    model: Any
    share: Share
    weights: Weights | None
    metrics: Metrics


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Where steps take their batches, and what they make of them.

    Attributes
    ----------
    batches
        This worker's shares of global batches, as tuples of tensors.
    layout, columns
        What these tensors mean, and what rows of them are.
    class_weight
        As in Keras.
    num_classes
        Targets are class numbers below it; None where they are not.
    """

    batches: Iterator[Any]
    layout: Layout
    columns: Sequence[Column]
    class_weight: dict[int, float] | None = None
    num_classes: int | None = None


class Steps:
    """One step of a worker after the other; what ``model.train_function`` or ``test_function`` is set to.

    Parameters
    ----------
    rank
        Whose.
    feed
        Batches.
    step
        ``model.train_step`` or ``model.test_step``.
    after
        Called with the logs of each step; returns those that callbacks see.

    Notes
    -----
    Where workers agree in steps, one without rows of a batch goes through the step with a row of zeros that weighs
    nothing, so that it takes part in every sum; then its metrics and moving averages are set back.
    """

    def __init__(self, rank: Rank, feed: Feed, step: Callable[[Any], Any], after: Callable[[Any], Any]) -> None:
        self._rank, self._feed, self._step, self._after = rank, feed, step, after
        self._weights = None if feed.class_weight is None else _weights_by_class(feed.class_weight)
        self._floatx = keras.config.floatx()
        self._run: Callable[[Any], Any] | None = None
        self._logs: Any = {}

    def __call__(self, iterator: Any) -> Any:  # noqa: ARG002 - Keras' own iterator, which counts steps only
        """Take the next step."""
        rank = self._rank
        columns = next(self._feed.batches)
        rows = rank.backend.num_rows(columns[0])
        rank.share.weight = rows / rank.session.global_rows
        self._logs = self._stepped(columns) if rows else self._stepped_without_rows()
        return self._after(self._logs)

    def _stepped_without_rows(self) -> Any:
        rank = self._rank
        if rank.weights is None:
            return self._logs
        metrics, statistics = rank.metrics.state(), rank.weights.statistics()
        logs = self._stepped([rank.backend.zeros(column.row_shape, column.dtype) for column in self._feed.columns])
        rank.metrics.restore(metrics)
        rank.weights.set_statistics(statistics)
        return logs

    def _stepped(self, columns: Sequence[Any]) -> Any:
        backend = self._rank.backend
        batch = self._packed([backend.as_floatx(column, self._floatx) for column in columns])
        if self._run is None:
            self._run = backend.compiled(self._step, self._rank.model, batch)
        return self._run(batch)

    def _packed(self, columns: list[Any]) -> Any:
        x, y, sample_weight = self._feed.layout.pack(columns)
        if self._feed.num_classes is not None:
            self._check_labels(y)
        if self._weights is not None:
            sample_weight = _weights_of(y, self._weights)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)

    def _check_labels(self, y: Any) -> None:
        labels = np.asarray(keras.ops.convert_to_numpy(y))
        low, high = labels.min(), labels.max()
        if low < 0 or high >= (self._feed.num_classes or 0):
            raise DataError(
                f"A batch has labels from {low} to {high}, and the model tells {self._feed.num_classes} classes apart.",
                change="Number the classes from 0, or give the last layer as many units as there are classes.",
            )


def _weights_by_class(by_class: dict[int, float]) -> np.ndarray:
    table = np.ones(max(by_class) + 1, keras.config.floatx())
    for number, weight in by_class.items():
        table[number] = weight
    return table


def _weights_of(y: Any, table: np.ndarray) -> Any:
    """Sample weights by class, as Keras' ``class_weight`` means them: classes that it does not name weigh 1."""
    classes = np.asarray(keras.ops.convert_to_numpy(y))
    if classes.ndim > 1:
        classes = classes.argmax(-1) if classes.shape[-1] > 1 else classes[..., 0]
    classes = np.round(classes).astype(np.int64)
    known = classes < len(table)
    return keras.ops.convert_to_tensor(np.where(known, table[np.where(known, classes, 0)], 1), keras.config.floatx())
