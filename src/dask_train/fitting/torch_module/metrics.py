"""Metrics of a module: of torchmetrics, or plain functions, over the batches of an epoch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any, Self

import cloudpickle  # type: ignore[import-untyped]
import torch


class Mean:
    """The mean of what a function gives for each batch, weighed by the rows of the batches.

    Parameters
    ----------
    function
        Of outputs and targets: one number, or one for each row, whose mean counts.
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
        """Count what is known of a batch."""
        self._total, self._rows = self._total + value * rows, self._rows + rows

    def take(self, other: Mean) -> None:
        """Go on with what another has counted."""
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
        As the user named them. Those of torchmetrics have ``update``, ``compute`` and ``reset``.
    device
        Where outputs are.
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
        """Copy metrics, so that those that were passed stay as they are; functions are the same ones."""
        return cls(copy.deepcopy(dict(metrics)), device)

    @property
    def look_at_rows(self) -> bool:
        """Whether any looks at outputs and targets, besides the loss."""
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
        """Return what costs nothing to tell: the loss, and what functions give."""
        return {"loss": self._loss.compute(), **{name: mean.compute() for name, mean in self._means.items()}}

    @torch.no_grad()
    def results(self) -> dict[str, Any]:
        """Return what all say, numbers where they are one, else lists of them.

        Raises
        ------
        ValueError
            Two say something under one name.
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
        """Return what they have counted; :meth:`restore` takes it."""
        return bytes(cloudpickle.dumps((self._loss, self._of_torchmetrics, self._means)))

    def restore(self, state: bytes) -> list[str]:
        """Go on counting until the next :meth:`reset`; which metrics can't, since others were counted then."""
        loss, of_torchmetrics, means = pickle.loads(state)  # noqa: S301 - of the user's metrics
        self._loss.take(loss)
        known = {name: one for name, one in of_torchmetrics.items() if _is_like(one, self._own.get(name))}
        self._of_torchmetrics = {**self._own, **known}
        restored = self._means.keys() & means.keys()
        for name in restored:
            self._means[name].take(means[name])
        return [name for name in self._order if name not in known and name not in restored]


def counts_by_itself(metric: Any) -> bool:
    """Return whether a metric is one of torchmetrics, or like these."""
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))


def _is_like(one: Any, other: Any) -> bool:
    """Return whether two metrics are of a kind, and collections of metrics of the same names."""
    names, others = (list(each.keys()) if hasattr(each, "keys") else [] for each in (one, other))
    return type(one) is type(other) and names == others


def _number(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else value.tolist()
    return value
