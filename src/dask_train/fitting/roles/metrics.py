"""What the metrics of a model have counted, as numbers that can be added up over workers.

Exact for metrics whose variables are sums over rows, as are those of Keras: means, counts, confusion matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.compiled import inner_metrics, metrics_passed
from dask_train.fitting.backends import Derived
from dask_train.fitting.backends.base import flat
from dask_train.fitting.roles.by_row import variables_of_all
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.weights import value_of
from dask_train.keras_models import state


def all_metrics(model: Any) -> list[Any]:
    """Return all metrics of a model, and what they are made of."""
    metrics, waiting = [], list(model.metrics)
    while waiting:
        metric = waiting.pop()
        metrics.append(metric)
        waiting.extend(inner_metrics(metric))
    return metrics


def compiled_with(model: Any) -> list[Any]:
    """Return the metrics that ``compile`` was given, which are among the model's own after the first step only."""
    metrics = keras.tree.flatten(list(metrics_passed(model).values()))
    return [metric for metric in metrics if isinstance(metric, keras.metrics.Metric)]


class StepLogs(NamedTuple):
    """What a step has returned.

    Attributes
    ----------
    values
        Logs by name.
    derived
        What is known of them.
    """

    values: dict[str, Any]
    derived: Derived = Derived()

    @classmethod
    def of(cls, logs: Any, derived: Derived) -> StepLogs:
        """Make logs of what a ``train_step`` has returned, which may be no logs."""
        return cls(flat(logs), derived)


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
        self._zeros: list[np.ndarray] = []  # what they hold before the first row
        self._from: list[np.ndarray] = []  # what is taken off to count: zeros, except for those that are infinite

    def counted(self) -> list[np.ndarray]:
        """Return what they have counted since they were last reset, float64."""
        self._see_variables()
        pairs = zip(self._variables, self._from, strict=True)
        return [np.asarray(value_of(variable), np.float64) - zero for variable, zero in pairs]

    def places(self) -> dict[int, int]:
        """Return where what a variable has counted lies in :meth:`counted`, by the variable's ``id``."""
        self._see_variables()
        return {id(variable): place for place, variable in enumerate(self._variables)}

    def set(self, counted: Sequence[Any] | None) -> None:
        """Let them have counted that; None for nothing."""
        self._see_variables()
        for number, (variable, zero) in enumerate(zip(self._variables, self._zeros, strict=True)):
            value = zero if counted is None else self._from[number] + counted[number]
            variable.assign(np.asarray(value, variable.dtype))

    def results(self) -> dict[str, Any]:
        """Return what the metrics say."""
        results: dict[str, Any] = self._model.get_metrics_result()
        return results

    def variables(self) -> list[Any]:
        """In which they count."""
        self._see_variables()
        return self._variables

    def renewed(self, step_logs: StepLogs) -> dict[str, Any]:
        """Return the logs of a step that depend on what metrics have counted, from what these hold now.

        Where it is not known what logs depend on, they are metrics' results that have a metric's name.
        """
        derived = step_logs.derived
        logs = dict(zip(derived.names, derived.again(), strict=True))
        unknown = step_logs.values.keys() - logs.keys() - derived.raw
        results = self.results() if unknown else {}
        return {**logs, **{name: results[name] for name in unknown if name in results}}

    def state(self) -> list[np.ndarray]:
        """Return a copy of their variables, which :meth:`restore` takes."""
        return [np.array(value_of(variable)) for variable in _variables(self._model)]

    def restore(self, state: list[np.ndarray], *, keeps: Collection[int] = ()) -> None:
        """Set their variables, but those with an ``id`` that is kept; nothing counted where they were not there yet."""
        variables = _variables(self._model)
        if len(variables) == len(state):
            for variable, value in zip(variables, state, strict=True):
                if id(variable) not in keeps:
                    variable.assign(value)
        else:
            self._model.reset_metrics()

    def go_on(self) -> None:
        """Prepare for the next step."""

    def forget_rows(self, before: list[np.ndarray]) -> None:
        """Let no rows of this worker have been counted since then."""
        self.restore(before)

    def _see_variables(self) -> None:
        """Find the variables, and what they hold before the first row."""
        variables = _variables(self._model)
        if [id(variable) for variable in variables] == [id(variable) for variable in self._variables]:
            return
        counted = self.state()
        self._model.reset_metrics()
        self._variables, self._zeros = variables, [np.array(value_of(variable), np.float64) for variable in variables]
        self._from = [np.where(np.isfinite(zero), zero, 0.0) for zero in self._zeros]
        self.restore(counted)


class MetricSums(Metrics):
    """Metrics whose counts go to the first worker, where callbacks look.

    Notes
    -----
    The first worker's metrics hold the sums of all, those of the others what came since they were last added up.
    Compiled metrics that are given all workers' rows (:func:`variables_of_all`) count these on each worker: of them the
    first worker's counts are all.
    """

    def __init__(self, model: Any, group: ProcessGroup, share: RowFraction) -> None:
        super().__init__(model)
        self._group, self._share = group, share
        self._channels: dict[Any, Any] = {}
        self._carried: list[np.ndarray] = []

    def gather(self, step_logs: StepLogs) -> dict[str, Any]:
        """Add up, after a step; the logs of that step over all workers, as the first worker has them.

        What does not depend on what metrics have counted is counted with this worker's share of the rows.
        """
        self.give_to_first()
        renewed = self.renewed(step_logs)
        others = sorted(step_logs.values.keys() - renewed.keys())
        logs = {**step_logs.values, **renewed}
        if others:
            mine = [np.asarray(state.as_array(step_logs.values[name]), np.float64) for name in others]
            means = self._group.sum(self._channel(tuple(others), mine), mine, self._share.weight)
            logs.update((name, np.array(mean)[()]) for name, mean in zip(others, means, strict=True))
        return logs

    def give_to_first(self) -> None:
        """Let the first worker have what all have counted of the epoch, and the others nothing."""
        counted, self._carried = self.held(), []
        total = self._group.sum(self._channel("metrics", counted), counted)
        self.set(total if self._group.rank == 0 else None)

    def held(self) -> list[np.ndarray]:
        """Return this worker's part of what the epoch has counted, as :meth:`carry` takes it."""
        counted = self.counted()
        if self._carried and not counted:  # no step has made their variables here
            return list(self._carried)
        if self._carried:
            counted = [mine + before for mine, before in zip(counted, self._carried, strict=True)]
        if self._group.rank:
            of_all = variables_of_all(self._model)
            for place, variable in enumerate(self._variables):
                if id(variable) in of_all:
                    counted[place] = np.zeros_like(counted[place])
        return counted

    def carry(self, counted: list[np.ndarray]) -> None:
        """Add what another process has counted of this epoch when it is next added up."""
        self._carried = [np.asarray(one) for one in counted]

    @staticmethod
    def regrouped(parts: list[list[np.ndarray]], rank: int) -> list[np.ndarray]:
        """Return what a worker carries where other workers have counted these parts: the first one all of them."""
        return [] if rank else [np.sum(each, axis=0) for each in zip(*filter(None, parts), strict=True)]

    def go_on(self) -> None:
        """See :meth:`Metrics.go_on`: variables count on from what is carried, to the bit, where they are there already.

        What is given all workers' rows does so in any case.
        """
        if not self._carried:
            return
        if len(self._carried) == len(counted := self.counted()) and not any(one.any() for one in counted):
            self.set(self._carried)
            self._carried = []
            return
        of_all = variables_of_all(self._model)
        for place, variable in enumerate(self._variables):
            if id(variable) in of_all and self._carried[place].any():
                variable.assign(np.asarray(self._from[place] + self._carried[place], variable.dtype))
                self._carried[place] = np.zeros_like(self._carried[place])

    @property
    def carries(self) -> bool:
        """Return whether something is carried that variables do not hold yet."""
        return bool(self._carried)

    def forget_rows(self, before: list[np.ndarray]) -> None:
        """See :meth:`Metrics.forget_rows`; those of all workers have been."""
        self.restore(before, keeps=variables_of_all(self._model))

    def _channel(self, key: Any, arrays: list[np.ndarray]) -> Any:
        key = (key, tuple(array.shape for array in arrays))
        if key not in self._channels:
            self._channels[key] = self._group.channel([array.shape for array in arrays], np.float64)
        return self._channels[key]


def _variables(model: Any) -> list[Any]:
    variables_by_id: dict[int, Any] = {}
    for metric in model.metrics:
        for variable in metric.variables:
            variables_by_id[id(variable)] = variable
    return list(variables_by_id.values())
