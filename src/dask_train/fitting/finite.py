"""Report trained weights that are not finite, which a loss may not show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dask_train.fitting.kinds import KINDS, is_keras_model, kind_of
from dask_train.input_errors import warn_at_the_call

# How the notice begins.
NOT_FINITE = "Weights are NaN or infinite"
_FILLED = ", such as by frame.assign(column=frame.column.fillna(value)), or leave such rows out: frame.dropna()."
# Of the weights that are named, the rest is counted.
_NUM_NAMED = 3


def describe_bad_weights(model: Any) -> str | None:
    """Return a notice where weights of a Keras model or a torch module are NaN or infinite; None if all are finite.

    Such a model still predicts, and ReLU makes 0 of NaN: the loss may look well.

    Notes
    -----
    Weights are looked at where they lie; nothing is copied on CPUs.
    """
    names = [name for name, value in _weights(model) if not _is_finite(value)]
    if not names:
        return None
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return (
        f"{NOT_FINITE}: {', '.join(names[:_NUM_NAMED])}{more}. What the model predicts is of no use. "
        "Missing numbers among features or targets lead there, and so does a learning rate that is too high. Fill "
        f"missing numbers in before training{_FILLED}"
    )


def warn_of_evaluation(scores: Mapping[str, float]) -> None:
    """Warn where the loss of an evaluation is NaN: metrics may look well then, as NaN is counted as a class."""
    if np.isnan(scores.get("loss", 0.0)):
        warn_at_the_call(
            "The loss is NaN, so some of the model's outputs are, or some targets. Other metrics count such rows as if "
            "the model had decided. Features with missing numbers lead there: fill them in, as before training."
        )


def describe_bad_validation(history: Mapping[str, Sequence[Any]]) -> str | None:
    """Return a notice where the validation's loss was never a number, although that of training was; else None."""
    loss, of_validation = history.get("loss", ()), history.get("val_loss", ())
    if not of_validation or not np.isnan(of_validation).all() or not np.isfinite(loss).all():
        return None
    return (
        "The validation's loss is NaN in each epoch, and that of training is not. Features or targets of the "
        f"validation data may have missing numbers. Fill them in{_FILLED}"
    )


def _weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Give floating-point weights by name, as arrays or tensors."""
    if is_keras_model(model):
        import keras

        for weight in model.weights:
            if keras.backend.is_float_dtype(keras.backend.standardize_dtype(weight.dtype)):
                yield weight.path, keras.ops.convert_to_numpy(weight.value)
    elif kind_of(model, KINDS) == "torch.nn.Module":
        import torch

        for name, tensor in model.state_dict().items():
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.layout == torch.strided:
                yield name, tensor


def _is_finite(values: Any) -> bool:
    """Return whether all values are finite, by the least and the greatest: each of them is NaN where there is one."""
    if isinstance(values, np.ndarray):
        with np.errstate(invalid="ignore"):  # bfloat16 shows NaN so
            return not values.size or bool(np.isfinite(values.min()) and np.isfinite(values.max()))
    return not values.numel() or bool(values.min().isfinite() and values.max().isfinite())
