"""Losses of torch's own that are means or sums over elements of rows: two numbers describe a share of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from dask_train.fitting.torch_module.losses import SUM, by_row_of, counted, keywords_of, rows_of

BATCH_MEAN = "batchmean"

# Of classes, which are numbers or, of as many as outputs, their chances: the mean is over what elements weigh.
_OF_CLASSES: dict[Any, Callable[..., Any]] = {
    nn.CrossEntropyLoss: functional.cross_entropy,
    nn.NLLLoss: functional.nll_loss,
}
# Of elements, each with its target: the mean is over all of them.
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
# With which else they are known to be that; others, such as ``size_average``, mean something else in some of them.
_WORDS = {
    *("beta", "delta", "eps", "full", "ignore_index", "label_smoothing", "log_input", "log_target", "margin"),
    *("pos_weight", "reduction", "weight"),
}
_WEIGHED = ("weight", "pos_weight")


class Parts(NamedTuple):
    """What a share adds to the loss of a batch.

    Attributes
    ----------
    values
        Numbers whose sum over all shares, divided by their weight in all, is the loss.
    weight
        What those of this share weigh; 0 if nothing is divided.
    """

    values: torch.Tensor
    weight: float


class RowSums:
    """A loss that is a sum over elements of rows, or their mean.

    Parameters
    ----------
    loss
        Of torch's own.
    """

    def __init__(self, loss: Any) -> None:
        self._words = _words_of(loss)
        self._of_classes = _function_of(loss) in _OF_CLASSES.values()
        self._by_row, self._reduction = by_row_of(loss)

    @classmethod
    def of(cls, loss: Any, *, weighted: bool) -> RowSums | None:
        """Return a loss as sums over rows; None if it is not known to be that, with ``weighted`` rows or at all."""
        function, words = _function_of(loss), _words_of(loss)
        if function not in _FUNCTIONS.values() or not words.keys() <= _WORDS:
            return None
        reductions = ("mean", "sum") if function is not functional.kl_div else ("mean", "sum", BATCH_MEAN)
        if words["reduction"] not in reductions or (weighted and words["reduction"] == BATCH_MEAN):
            return None
        if function not in _OF_WEIGHTS and words.get("weight") is not None:  # a mean over what they weigh
            return None
        return cls(loss)

    def takes(self, outputs: Any, y: Any) -> bool:
        """Return whether it looks at each row by itself, of outputs and targets of such shapes, whatever their rows."""
        if not (isinstance(outputs, torch.Tensor) and isinstance(y, torch.Tensor)) or not (outputs.ndim and y.ndim):
            return False
        if self._of_classes:
            return outputs.ndim > 1
        weights = [self._words.get(name) for name in _WEIGHED]
        # Those of as many dimensions may be of the rows of a batch; what is not of one shape may be compared in pairs.
        per_row = any(one is not None and one.ndim >= outputs.ndim for one in weights)
        return outputs.shape[1:] == y.shape[1:] and not per_row

    def parts(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None) -> Parts:
        """Return what rows add to the loss of a batch."""
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
        """Return what class numbers weigh, but those that are left out."""
        classes, weights = y[y != self._words["ignore_index"]], self._words.get("weight")
        return float(classes.numel() if weights is None else weights[classes].double().sum())

    @property
    def divides(self) -> bool:
        """Whether the sum is divided by the weight of its parts."""
        return self._reduction != SUM


# Whose own weights leave the mean that over elements, or, of classes, over what these weigh.
_OF_WEIGHTS = (
    *_OF_CLASSES.values(),
    functional.binary_cross_entropy,
    functional.binary_cross_entropy_with_logits,
)


def _function_of(loss: Any) -> Any:
    """Return torch's function that a loss is: itself, with some arguments, or as a module that is unchanged."""
    if isinstance(loss, partial):
        return loss.func if not loss.args else None
    if isinstance(loss, nn.Module):
        attributes = vars(loss)
        changed = "forward" in attributes or any(value for name, value in attributes.items() if name.endswith("hooks"))
        return None if changed else _FUNCTIONS.get(type(loss))
    return loss


def _words_of(loss: Any) -> dict[str, Any]:
    """Return what a loss was made with; of a function all of its settings that are not None."""
    if isinstance(loss, nn.Module):
        return {name: getattr(loss, name) for name in sorted(_WORDS) if hasattr(loss, name)}
    return {name: value for name, value in keywords_of(loss).items() if value is not None}
