"""Losses of torch's own that are means or sums over rows: each share adds a sum and a weight to a batch's loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from dask_train.fitting.torch_module.losses import SUM, by_row_of, counted, keywords_of, rows_of

BATCH_MEAN = "batchmean"

# Targets are class indices, or probabilities shaped like the outputs; "mean" divides by the sum of the class weights
# for indices, by the number of values for probabilities.
_OF_CLASSES: dict[Any, Callable[..., Any]] = {
    nn.CrossEntropyLoss: functional.cross_entropy,
    nn.NLLLoss: functional.nll_loss,
}
# Each element of the outputs has a target; "mean" divides by the number of elements.
_OF_ELEMENTS: dict[Any, Callable[..., Any]] = {
    nn.BCELoss: functional.binary_cross_entropy,
    nn.BCEWithLogitsLoss: functional.binary_cross_entropy_with_logits,
    nn.HingeEmbeddingLoss: functional.hinge_embedding_loss,
    nn.HuberLoss: functional.huber_loss,
    nn.KLDivLoss: functional.kl_div,
    nn.L1Loss: functional.l1_loss,
    nn.MSELoss: functional.mse_loss,
    nn.PoissonNLLLoss: functional.poisson_nll_loss,
    nn.SmoothL1Loss: functional.smooth_l1_loss,
    nn.SoftMarginLoss: functional.soft_margin_loss,
}
_FUNCTIONS = {**_OF_CLASSES, **_OF_ELEMENTS}
# Keywords with which these losses stay means or sums over rows. Others, such as ``size_average``, change that.
_WORDS = {
    *("beta", "delta", "eps", "full", "ignore_index", "label_smoothing", "log_input", "log_target", "margin"),
    *("pos_weight", "reduction", "weight"),
}
_WEIGHED = ("weight", "pos_weight")


class Parts(NamedTuple):
    """A share's part of the loss of a batch.

    Attributes
    ----------
    values
        Loss values. Their sum over all shares, divided by the sum of weights, is the loss.
    weight
        Weight of this share's values; 0 for a loss that is a sum.
    """

    values: torch.Tensor
    weight: float


class RowSums:
    """A loss that is a sum or a mean over rows.

    Parameters
    ----------
    loss
        A loss of torch's own: a module, a function, or a partial of one.
    """

    def __init__(self, loss: Any) -> None:
        self._words = _words_of(loss)
        self._of_classes = _function_of(loss) in _OF_CLASSES.values()
        self._by_row, self._reduction = by_row_of(loss)

    @classmethod
    def of(cls, loss: Any, *, weighted: bool) -> RowSums | None:
        """Return a loss as sums over rows; None if it is not known to be one, or not with ``weighted`` rows."""
        function, words = _function_of(loss), _words_of(loss)
        if function not in _FUNCTIONS.values() or not words.keys() <= _WORDS:
            return None
        reductions = ("mean", "sum") if function is not functional.kl_div else ("mean", "sum", BATCH_MEAN)
        if words["reduction"] not in reductions or (weighted and words["reduction"] == BATCH_MEAN):
            return None
        if function not in _OF_WEIGHTS and words.get("weight") is not None:  # divided by these weights
            return None
        return cls(loss)

    def is_by_row(self, outputs: Any, y: Any) -> bool:
        """Return whether the loss is one over single rows for outputs and targets of these row shapes."""
        if not (isinstance(outputs, torch.Tensor) and isinstance(y, torch.Tensor)) or not (outputs.ndim and y.ndim):
            return False
        if self._of_classes:
            return outputs.ndim > 1
        weights = [self._words.get(name) for name in _WEIGHED]
        # A weight with as many dimensions as the outputs may hold a value per row of a batch; unequal shapes may
        # broadcast across rows.
        per_row = any(one is not None and one.ndim >= outputs.ndim for one in weights)
        return outputs.shape[1:] == y.shape[1:] and not per_row

    def parts(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None) -> Parts:
        """Return the part of these rows in the loss of a batch."""
        if not len(y):
            return Parts(outputs.sum(), 0.0)
        values = self._by_row(outputs, y)
        if weight is not None:
            by_row = rows_of(values, weight)
            values = (by_row.mean(1) if self.divides else by_row.sum(1)) * weight
        return Parts(values, self._weight_of(values, y, weight) if self.divides else 0.0)

    def _weight_of(self, values: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None) -> float:
        if weight is not None:
            return float(counted(weight.double(), y, self._words.get("ignore_index")).sum())
        if self._reduction == BATCH_MEAN:
            return float(len(values))
        if self._of_classes and not y.is_floating_point():
            return self._of_counted(y)
        return float(values.numel())

    def _of_counted(self, y: torch.Tensor) -> float:
        """Return the sum of the class weights of targets, without those of ``ignore_index``."""
        classes, weights = y[y != self._words["ignore_index"]], self._words.get("weight")
        return float(classes.numel() if weights is None else weights[classes].double().sum())

    @property
    def divides(self) -> bool:
        """Whether the sum of the values is divided by the sum of the weights."""
        return self._reduction != SUM


# Losses whose ``weight`` is allowed: it does not change what "mean" divides by, or is the class weight.
_OF_WEIGHTS = (
    *_OF_CLASSES.values(),
    functional.binary_cross_entropy,
    functional.binary_cross_entropy_with_logits,
)


def _function_of(loss: Any) -> Any:
    """Return torch's function behind a loss: a function, a partial with keywords only, or an unchanged module."""
    if isinstance(loss, partial):
        return loss.func if not loss.args else None
    if isinstance(loss, nn.Module):
        attributes = vars(loss)
        changed = "forward" in attributes or any(value for name, value in attributes.items() if name.endswith("hooks"))
        return None if changed else _FUNCTIONS.get(type(loss))
    return loss


def _words_of(loss: Any) -> dict[str, Any]:
    """Return the keywords of a loss: attributes of a module, or a function's arguments that are not None."""
    if isinstance(loss, nn.Module):
        return {name: getattr(loss, name) for name in sorted(_WORDS) if hasattr(loss, name)}
    return {name: value for name, value in keywords_of(loss).items() if value is not None}
