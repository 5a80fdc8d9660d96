"""Metrics over the batches of an epoch: those of torchmetrics, or means of plain functions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any, Self

import cloudpickle  # type: ignore[import-untyped]
import torch


class Mean:
    """The mean of a function over batches, weighted by their numbers of rows.

    Parameters
    ----------
    function
        Function of outputs and targets. It returns one number, or one per row, which are averaged.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._total, self._rows = 0.0, 0

    def update(self, outputs: Any, y: Any, rows: int) -> None:
        """Count a batch of that many rows."""
        self.add(float(torch.as_tensor(self._function(outputs, y)).double().mean()), rows)

    def add(self, value: float, rows: int) -> None:
        """Add the known value of a batch."""
        self._total, self._rows = self._total + value * rows, self._rows + rows

    def take(self, other: Mean) -> None:
        """Take over the total of another mean."""
        self._total, self._rows = other._total, other._rows

    def __getstate__(self) -> dict[str, Any]:
        return {"_total": self._total, "_rows": self._rows}  # the function may be any, which can't be pickled

    def compute(self) -> float:
        """Return the mean so far."""
        return self._total / self._rows if self._rows else float("nan")


class ModuleMetrics:
    """The loss, and metrics by name, of the batches since :meth:`reset`.

    Parameters
    ----------
    metrics
        Metrics by the user's names. Those of torchmetrics have ``update``, ``compute`` and ``reset``.
    device
        Device of the outputs.
    """

    def __init__(self, metrics: Mapping[str, Any], device: Any = "cpu") -> None:
        self._loss = Mean(None)
        self._own = {name: one for name, one in metrics.items() if counts_by_itself(one)}
        self._of_torchmetrics: Mapping[str, Any] = self._own  # or those of a checkpoint, until the epoch ends
        self._means = {name: Mean(one) for name, one in metrics.items() if not counts_by_itself(one)}
        self._order = list(metrics)
        for one in self._of_torchmetrics.values():
            one.to(device)
        self.reset()

    @classmethod
    def like(cls, metrics: Mapping[str, Any], device: Any) -> Self:
        """Return these metrics with copies of those of torchmetrics, so that the user's own do not change."""
        return cls(copy.deepcopy(dict(metrics)), device)

    @property
    def look_at_rows(self) -> bool:
        """Whether any metric besides the loss needs outputs and targets."""
        return bool(self._order)

    def reset(self) -> None:
        """Begin anew."""
        self._of_torchmetrics = self._own
        for one in (self._loss, *self._of_torchmetrics.values(), *self._means.values()):
            one.reset()

    @torch.no_grad()
    def update(self, loss: float, outputs: Any, y: Any, rows: int) -> None:
        """Count a batch of that many rows."""
        self._loss.add(loss, rows)
        for metric in self._of_torchmetrics.values():
            metric.update(outputs, y)
        for mean in self._means.values():
            mean.update(outputs, y, rows)

    def means(self) -> dict[str, Any]:
        """Return the means that are known at any time: the loss, and the means of functions."""
        return {"loss": self._loss.compute(), **{name: mean.compute() for name, mean in self._means.items()}}

    @torch.no_grad()
    def results(self) -> dict[str, Any]:
        """Return the results of all metrics by name: numbers, or lists of numbers.

        Raises
        ------
        ValueError
            Two metrics have results of one name.
        """
        results: dict[str, Any] = {"loss": self._loss.compute()}
        for name in self._order:
            metric = self._means.get(name) or self._of_torchmetrics[name]
            value = metric.compute()
            for part, one in value.items() if isinstance(value, dict) else [(name, value)]:
                if str(part) in results:
                    raise ValueError(
                        f"Two metrics tell {str(part)!r}. Give a MetricCollection a prefix=, or metrics other names."
                    )
                results[str(part)] = _number(one)
        return results

    def state(self) -> bytes:
        """Return the state of all metrics, for :meth:`restore`."""
        return bytes(cloudpickle.dumps((self._loss, self._of_torchmetrics, self._means)))

    def restore(self, state: bytes) -> list[str]:
        """Restore a state until the next :meth:`reset`; return the names of metrics that it does not have."""
        loss, of_torchmetrics, means = pickle.loads(state)  # noqa: S301 - of the user's metrics
        self._loss.take(loss)
        known = {name: one for name, one in of_torchmetrics.items() if _is_like(one, self._own.get(name))}
        self._of_torchmetrics = {**self._own, **known}
        restored = self._means.keys() & means.keys()
        for name in restored:
            self._means[name].take(means[name])
        return [name for name in self._order if name not in known and name not in restored]


def counts_by_itself(metric: Any) -> bool:
    """Return whether a metric has the interface of torchmetrics."""
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))


def _is_like(one: Any, other: Any) -> bool:
    """Return whether two metrics are of a kind, and collections of metrics of the same names."""
    names, others = (list(each.keys()) if hasattr(each, "keys") else [] for each in (one, other))
    return type(one) is type(other) and names == others


def _number(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else value.tolist()
    return value
