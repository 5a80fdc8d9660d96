"""Losses and metrics of ``compile`` that may look at several rows together: they get those of the global batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.internals import MeanMetricWrapper, MetricsList, get_keras_mask, set_keras_mask
from dask_train.compat.keras.patches import losses_replaced
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside, with_all_rows
from dask_train.fitting.roles.by_row import give_all_rows, has_values_alone, is_loss_by_row
from dask_train.fitting.roles.global_rows import GlobalRows
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.rehearsal import may_shape_rows
from dask_train.fitting.roles.row_lengths import RowLengths, texts_of_one_length


@contextmanager
def compiled_of_all(group: ProcessGroup, backend: Backend, share: RowFraction, model: Any) -> Iterator[None]:
    """While it lasts, compiled losses and metrics that are not known to go by row are given all workers' rows.

    Notes
    -----
    So each worker computes the very number that one process would. The variables of such metrics hold the counts of all
    rows on each worker, and are not added up: see :class:`~dask_train.fitting.roles.metrics.MetricSums`.

    Those that go by row depend on the length of rows. Where code of the user's own may change that, workers compare it.
    """
    lengths = RowLengths(group, backend, share, by_code=may_shape_rows(model))
    gathering = _Gathering(GlobalRows(group, backend, share), backend, lengths)
    update = MetricsList.update_state

    def update_state(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        others = [metric for metric in self.metrics if give_all_rows(metric, y_true, y_pred)]
        gathering.update([metric for metric in self.metrics if metric not in others], y_true, y_pred, sample_weight)
        if others:
            all_rows = gathering.all_rows(y_true, y_pred, sample_weight, derives=False)
            with with_all_rows():
                for metric in others:
                    metric.update_state(*all_rows[:2], sample_weight=all_rows[2])

    MetricsList.update_state = update_state
    try:
        with (
            losses_replaced(gathering.of),
            texts_of_one_length(lengths),
            backend.gathering(lambda: share.global_rows),
        ):
            yield
    finally:
        MetricsList.update_state = update


class _Gathering:
    def __init__(self, rows: GlobalRows, backend: Backend, lengths: RowLengths) -> None:
        self._rows, self._backend, self._lengths = rows, backend, lengths

    def of(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """Return a loss as a worker computes it."""
        by_row = is_loss_by_row(loss)

        def of_all(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            if by_row and not has_values_alone(y_true, y_pred):
                if not _is_masked(y_pred):
                    self._lengths.check(keras.tree.flatten([y_true, y_pred]))
                return loss(y_true, y_pred, sample_weight)
            all_rows = self.all_rows(y_true, y_pred, sample_weight, derives=True)
            with with_all_rows():
                return self._backend.mark_multiplied(loss(*all_rows))

        return of_all

    def update(self, metrics: list[Any], y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        """Update metrics that go by row with those of this worker."""
        masked = [metric for metric in metrics if isinstance(metric, MeanMetricWrapper) and _is_masked(y_pred)]
        if len(masked) < len(metrics):
            self._lengths.check(keras.tree.flatten([y_true, y_pred]))
        for metric in metrics:
            if metric not in masked:
                metric.update_state(y_true, y_pred, sample_weight=sample_weight)
        if masked:  # they take means over the steps of a row, masked ones included
            tensors = [one for one in (y_true, y_pred, get_keras_mask(y_pred), sample_weight) if one is not None]
            y_true, y_pred, mask, *weights = self._lengths.padded([keras.ops.convert_to_tensor(one) for one in tensors])
            set_keras_mask(y_pred, mask)
            for metric in masked:
                metric.update_state(y_true, y_pred, sample_weight=weights[0] if weights else None)

    def all_rows(self, y_true: Any, y_pred: Any, sample_weight: Any, *, derives: bool) -> tuple[Any, Any, Any]:
        """Return targets, outputs with their masks, and weights, of all rows."""
        if is_aside():
            return y_true, y_pred, sample_weight
        outputs = keras.tree.flatten(y_pred)
        masks = [get_keras_mask(output) for output in outputs]
        leaves = [*outputs, *masks, *keras.tree.flatten([y_true, sample_weight])]
        places = [place for place, leaf in enumerate(leaves) if leaf is not None]
        tensors = [keras.ops.convert_to_tensor(leaves[place]) for place in places]
        for place, tensor in zip(places, self._rows.of(tensors, len(outputs) if derives else 0), strict=True):
            leaves[place] = tensor
        count = len(outputs)
        for output, mask in zip(leaves[:count], leaves[count : 2 * count], strict=True):
            if mask is not None:
                set_keras_mask(output, mask)
        found_true, found_weight = keras.tree.pack_sequence_as([y_true, sample_weight], leaves[2 * count :])
        return found_true, keras.tree.pack_sequence_as(y_pred, leaves[:count]), found_weight


def _is_masked(y_pred: Any) -> bool:
    """Return whether outputs have a mask of what a loss has a value of each; else all of a row counts."""
    mask = None if keras.tree.is_nested(y_pred) else get_keras_mask(y_pred)
    return mask is not None and len(mask.shape) < len(y_pred.shape)
