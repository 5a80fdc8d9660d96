"""Loss and metrics of a Keras model, batch by batch as Keras' own ``evaluate`` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.fitting.roles.metrics import Metrics
from dask_train.fitting.roles.own_metrics import check_sums
from dask_train.fitting.roles.weights import value_of
from dask_train.keras_models import state
from dask_train.predicting.server.keras_backends import KerasBackend
from dask_train.predicting.server.values import Call


class Evaluation:
    """A compiled model whose metrics count; they are as they were after each call.

    Parameters
    ----------
    model : keras.Model
        Compiled.
    backend
        That of Keras.
    """

    def __init__(self, model: Any, backend: KerasBackend) -> None:
        self._model, self._backend, self._metrics = model, backend, Metrics(model)
        self._steps: dict[str, Callable[[Any], Any]] = {}
        # Places of variables that have counted nothing but 0; None before the first batch.
        self._unchecked: set[int] | None = None

    def counts(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """Return what is counted over the rows, float64."""
        with self._counting():
            for start in range(0, len(columns[0]), call.batch_size):
                self._step(call, [column[start : start + call.batch_size] for column in columns])
                beat()
            counts = self._metrics.counted()
        for start in range(0, len(columns[0]), call.batch_size):  # once metrics are built
            if self._unchecked is not None and not any(np.any(counts[place]) for place in self._unchecked):
                break
            rows = [column[start : start + call.batch_size] for column in columns]
            unknown = check_sums(self._model, self._metrics, partial(self._counted_over, call, rows), "partitions")
            self._unchecked = unknown if self._unchecked is None else self._unchecked & unknown
            beat()
        return counts

    def logs(self, call: Call, columns: Sequence[np.ndarray]) -> dict[str, Any]:
        """Return what ``evaluate`` returns after the last batch, which these rows are."""
        with self._counting():
            if call.before is not None:
                self._metrics.set(call.before)
            logs = self._step(call, columns)
            results = self._model.get_metrics_result()
            if isinstance(logs, dict) and set(logs) == set(results):
                logs = results  # as Keras does: a custom step may say something else
            return _plain(logs or {})

    @contextmanager
    def _counting(self) -> Iterator[None]:
        before = self._metrics.state()
        self._model.reset_metrics()
        try:
            yield
        finally:
            self._metrics.restore(before)

    def _step(self, call: Call, columns: Sequence[np.ndarray]) -> Any:
        """Return the logs of a batch, which is counted besides what was before."""
        key = repr((call.columns, [(column.dtype, column.shape[1:]) for column in columns]))
        if key not in self._steps:
            self._steps[key] = self._compiled(call, columns)
        return self._steps[key](columns)

    def _compiled(self, call: Call, columns: Sequence[np.ndarray]) -> Callable[[Any], Any]:
        def packed(rows: Sequence[Any]) -> Any:
            return keras.utils.pack_x_y_sample_weight(*call.columns.pack(rows))

        return self._backend.testing(self._model, packed, columns)

    def _counted_over(self, call: Call, rows: Sequence[np.ndarray], times: int) -> list[np.ndarray]:
        seeds = [(variable, np.array(value_of(variable))) for variable in state.seed_states(self._model)]
        with self._counting():
            for _ in range(times):
                self._step(call, rows)
                for variable, value in seeds:
                    variable.assign(value)
            return self._metrics.counted()


def _plain(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs in the order and form in which Keras gives them, of numbers and arrays."""
    plain_logs: dict[str, Any] = {}
    for name, value in sorted(logs.items()):
        if isinstance(value, dict):
            plain_logs.update(_plain(value))
        else:
            is_number = isinstance(value, float | int)
            array = np.asarray(value if is_number else keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(value)))
            plain_logs[name] = float(array) if array.ndim == 0 else array
    return plain_logs
