"""What a network's outputs mean to scikit-learn: labels, probabilities, confidences; block by block of Dask arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import numpy as np
from scipy.special import expit, softmax


def labels(raw: Any, classes: np.ndarray) -> Any:
    """Return the class of the largest output of each row, ``(n,)``."""
    return _by_row(raw, partial(_labels, classes=classes), dtype=classes.dtype)


def probabilities(raw: Any, num_classes: int, link: str | None) -> Any:
    """Return the probability of each class, ``(n, classes)``; rows sum to 1.

    Parameters
    ----------
    raw
        Outputs, ``(n, classes)``.
    num_classes
        How many there are.
    link
        What makes probabilities of the outputs: ``"softmax"``, ``"sigmoid"``, or None if they are probabilities.

    Raises
    ------
    ValueError
        They are not probabilities, or not as many; of a Dask array when it is computed.
    """
    return _by_row(raw, partial(_probabilities, num_classes=num_classes, link=link), width=num_classes)


def margins(raw: Any) -> Any:
    """Return how much larger the second class's output is than the first one's, ``(n,)``."""
    check_units(raw.shape[1:], 2)
    return raw[:, 1] - raw[:, 0]


def one_target(raw: Any) -> Any:
    """Return outputs of one target a row as ``(n,)``.

    Raises
    ------
    ValueError
        The model makes several numbers of a row.
    """
    if raw.ndim != 2 or raw.shape[1] != 1:
        raise ValueError(
            f"The model makes {raw.shape[1:]} numbers of each row, and y had one target. Give its last layer one unit."
        )
    return raw[:, 0]


def shape_of(model: Any) -> tuple[int, ...] | None:
    """Return the shape that a model makes of a row; None if it is not known yet, or is several arrays."""
    try:
        outputs = model.outputs
    except (AttributeError, ValueError):  # a subclass, or no layer knows its inputs
        return None
    return tuple(outputs[0].shape[1:]) if len(outputs) == 1 else None


def check_units(shape: tuple[int, ...], num_classes: int) -> None:
    """Check that a model makes a number for each class.

    Raises
    ------
    ValueError
        It makes others.
    """
    if shape != (num_classes,):
        raise ValueError(
            f"The model makes {shape} numbers of each row, and there are {num_classes} classes. Give its last layer "
            f"units={num_classes}, also for two classes: y has a column for each."
        )


def link_of(loss: Any) -> str | None:
    """Return what makes probabilities of a network's outputs, by the loss that it was compiled with."""
    if not getattr(loss, "from_logits", False):
        return None
    return "sigmoid" if type(loss).__name__.startswith("Binary") else "softmax"


def _by_row(raw: Any, function: Callable[..., Any], **meta: Any) -> Any:
    if not dask.is_dask_collection(raw):
        return function(raw)
    raw = raw.rechunk({1: -1})
    if "width" in meta:
        return raw.map_blocks(function, dtype=raw.dtype, chunks=(raw.chunks[0], (meta["width"],)))
    return raw.map_blocks(function, drop_axis=1, **meta)


def _labels(raw: np.ndarray, *, classes: np.ndarray) -> np.ndarray:
    check_units(raw.shape[1:], len(classes))
    labels: np.ndarray = classes[raw.argmax(axis=1)]
    return labels


def _probabilities(raw: np.ndarray, *, num_classes: int, link: str | None) -> np.ndarray:
    check_units(raw.shape[1:], num_classes)
    probabilities: np.ndarray = softmax(raw, axis=1) if link == "softmax" else expit(raw) if link == "sigmoid" else raw
    if (probabilities < 0).any() or (probabilities > 1 + 1e-5).any():
        raise ValueError(
            f"The model's outputs, from {probabilities.min():g} to {probabilities.max():g}, are no probabilities. "
            "End it with a softmax, or compile a loss with from_logits=True."
        )
    total = probabilities.sum(axis=1, keepdims=True)
    none = total == 0
    return np.where(none, 1 / num_classes, probabilities / np.where(none, 1, total)).astype(raw.dtype)
