"""The loss of a batch, given outputs, targets and sample weights."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from dask_train.errors import DataError

MEAN, SUM, NONE = "mean", "sum", "none"


class BatchLoss:
    """A loss of outputs, targets and sample weights.

    Parameters
    ----------
    loss
        The user's function or module.
    weighted
        Whether rows have sample weights. Then the loss must be able to return a value for each row.

    Raises
    ------
    TypeError, ValueError
        The loss can't do that, or has class weights.
    """

    def __init__(self, loss: Any, *, weighted: bool) -> None:
        self._loss = loss
        self._by_row: Callable[[Any, Any], Any] | None = None
        self._reduction = NONE
        if weighted:
            self._by_row, self._reduction = _weighable(loss)
            self._ignored = word_of(loss, "ignore_index")

    def __call__(self, outputs: Any, y: Any, weight: Any) -> torch.Tensor:
        """Return the loss of a batch, a tensor of one number.

        Raises
        ------
        ValueError
            The loss does not return a single number.
        DataError
            The sample weights of the batch add up to 0.
        """
        if self._by_row is None:
            value = self._loss(outputs) if y is None else self._loss(outputs, y)
            if not isinstance(value, torch.Tensor) or value.numel() != 1:
                raise ValueError(f"The loss gave {_describe(value)} of a batch; it has to be one number. {_REDUCE}")
            return value.reshape(())
        return self._weighted(self._by_row(outputs, y), y, weight)

    def _weighted(self, values: Any, y: Any, weight: torch.Tensor) -> torch.Tensor:
        by_row = rows_of(values, weight)
        if self._reduction == SUM:
            return (by_row.sum(1) * weight).sum()
        total = counted(weight, y, self._ignored).sum()
        check_weight(float(total))
        return (by_row.mean(1) * weight).sum() / total


def rows_of(values: Any, weight: torch.Tensor) -> torch.Tensor:
    """Return the values of a loss without reduction as ``(rows, elements)``, for rows with sample weights.

    Raises
    ------
    ValueError
        The loss has not returned a value for each row, or rows don't have one weight each.
    """
    if not isinstance(values, torch.Tensor) or not values.ndim or len(values) != len(weight):
        raise ValueError(
            f"The loss gave {_describe(values)} with reduction='none' of {len(weight)} rows, so sample_weight, one "
            "number a row, can't weigh it. Weigh in a loss of your own, with the weights among the targets."
        )
    if weight.shape != (len(weight),):
        raise ValueError(f"sample_weight has rows of shape {tuple(weight.shape[1:])}; it is one number a row.")
    return values.reshape(len(values), -1)


def counted(weight: torch.Tensor, y: Any, ignored: int | None) -> torch.Tensor:
    """Return the weights of rows in a mean: sample weights, times the part of targets that are not ``ignored``."""
    if ignored is None or not isinstance(y, torch.Tensor) or y.is_floating_point():
        return weight
    of_rows = (y != ignored).reshape(len(y), -1)
    return weight * of_rows.to(torch.promote_types(weight.dtype, torch.float32)).mean(1)


def check_weight(total: float) -> None:
    """Check that the sum of sample weights is not 0.

    Raises
    ------
    DataError
        It is.
    """
    if not total:
        raise DataError(
            "The sample weights of a batch add up to 0, so it has no weighted mean.",
            change="Leave out rows that weigh nothing, or pass a larger batch_size.",
        )


_REDUCE = "Use a torch.nn loss with reduction='mean' or 'sum', or reduce in the function."


def by_row_of(loss: Any) -> tuple[Callable[[Any, Any], Any], str]:
    """Return a loss without reduction, and the reduction of the loss that was passed."""
    if isinstance(loss, torch.nn.Module):
        function = copy.copy(loss)
        function.reduction = NONE
        return function, str(loss.reduction)
    return partial(loss, reduction=NONE), str(keywords_of(loss).get("reduction"))


def _weighable(loss: Any) -> tuple[Callable[[Any, Any], Any], str]:
    if word_of(loss, "reduction") not in (MEAN, SUM):
        raise TypeError(
            "sample_weight needs a loss that gives a value for each row with reduction='none', as those of torch.nn "
            f"and torch.nn.functional do, and reduces by 'mean' or 'sum'; {name_of(loss)} does not. Weigh in a loss "
            "of your own, with the weights among the targets."
        )
    if word_of(loss, "weight") is not None:
        raise ValueError(
            f"{name_of(loss)} has weights of its own, and sample_weight was given. Multiply both into one "
            "sample_weight."
        )
    return by_row_of(loss)


def word_of(loss: Any, name: str) -> Any:
    """Return what a loss was made with, or a function is called with; None if it tells nothing of the kind."""
    return getattr(loss, name, None) if isinstance(loss, torch.nn.Module) else keywords_of(loss).get(name)


def keywords_of(loss: Any) -> dict[str, Any]:
    """Return what a function is called with besides outputs and targets, as far as it tells."""
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


def name_of(loss: Any) -> str:
    """Return the name of a loss or a metric."""
    while isinstance(loss, partial):
        loss = loss.func
    return str(getattr(loss, "__name__", type(loss).__name__))


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
