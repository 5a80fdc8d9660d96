"""What the metrics of a model have counted, as numbers that can be added up over workers.

Exact for metrics whose variables are sums over rows, as are those of Keras: means, counts, confusion matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_train.agreement import Replicas
from dask_train.fit_roles.gradients import Share
from dask_train.fit_roles.weights import value_of
from dask_train.frameworks.keras import state


class Metrics:
    """The metrics of one worker's model.

    Parameters
    ----------
    model : keras.Model
        Its metrics have no variables before its first step.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._variables: list[Any] = []
        self._zeros: list[np.ndarray] = []

    def counted(self) -> list[np.ndarray]:
        """What they have counted since they were last reset, float64."""
        self._see_variables()
        pairs = zip(self._variables, self._zeros, strict=True)
        return [np.asarray(value_of(variable), np.float64) - zero for variable, zero in pairs]

    def set(self, counted: Sequence[Any] | None) -> None:
        """Let them have counted that; None for nothing."""
        self._see_variables()
        for number, (variable, zero) in enumerate(zip(self._variables, self._zeros, strict=True)):
            value = zero if counted is None else zero + counted[number]
            variable.assign(np.asarray(value, variable.dtype))

    def results(self) -> dict[str, Any]:
        """What they say."""
        results: dict[str, Any] = self._model.get_metrics_result()
        return results

    def state(self) -> list[np.ndarray]:
        """A copy of their variables, which :meth:`restore` takes."""
        return [np.array(value_of(variable)) for variable in _variables(self._model)]

    def restore(self, state: list[np.ndarray]) -> None:
        """Set their variables; nothing counted where they were not there yet."""
        variables = _variables(self._model)
        if len(variables) == len(state):
            for variable, value in zip(variables, state, strict=True):
                variable.assign(value)
        else:
            self._model.reset_metrics()

    def _see_variables(self) -> None:
        """The variables, and what they hold before the first row."""
        found = _variables(self._model)
        if [id(variable) for variable in found] == [id(variable) for variable in self._variables]:
            return
        counted = self.state()
        self._model.reset_metrics()
        self._variables, self._zeros = found, [np.array(value_of(variable), np.float64) for variable in found]
        self.restore(counted)


class MetricSums(Metrics):
    """Metrics whose counts go to the first worker, where callbacks look.

    Notes
    -----
    The first worker's metrics hold the sums of all, those of the others what came since they were last added up.
    """

    def __init__(self, model: Any, replicas: Replicas, share: Share) -> None:
        super().__init__(model)
        self._replicas, self._share = replicas, share
        self._channels: dict[Any, Any] = {}
        self._carried: list[np.ndarray] = []

    def gather(self, logs: Any) -> Any:
        """Add up, after a step; the logs of that step over all workers, as the first worker has them.

        Parameters
        ----------
        logs
            What this worker's step returned. What is no metric there counts with this worker's share of the rows.
        """
        counted = self.counted()
        if self._carried:
            counted = [mine + before for mine, before in zip(counted, self._carried, strict=True)]
            self._carried = []
        total = self._replicas.sum(self._channel("metrics", counted), counted)
        self.set(total if self._replicas.rank == 0 else None)
        results = self.results()
        if not isinstance(logs, dict):
            return results
        others = sorted(set(logs) - set(results))
        if others:
            mine = [np.asarray(state.as_array(logs[name]), np.float64) for name in others]
            means = self._replicas.sum(self._channel(tuple(others), mine), mine, self._share.weight)
            results = {**results, **{name: float(mean) for name, mean in zip(others, means, strict=True)}}
        return {name: results[name] for name in logs}

    def carry(self, counted: list[np.ndarray]) -> None:
        """Add what another process has counted of this epoch when it is next added up."""
        self._carried = counted

    def _channel(self, key: Any, arrays: list[np.ndarray]) -> Any:
        key = (key, tuple(array.shape for array in arrays))
        if key not in self._channels:
            self._channels[key] = self._replicas.channel([array.shape for array in arrays], np.float64)
        return self._channels[key]


def _variables(model: Any) -> list[Any]:
    found: dict[int, Any] = {}
    for metric in model.metrics:
        for variable in metric.variables:
            found[id(variable)] = variable
    return list(found.values())
