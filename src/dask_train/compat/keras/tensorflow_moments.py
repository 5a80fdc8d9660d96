"""Private parts of batch normalization on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.backend.tensorflow import nn

Moments = Callable[..., tuple[Any, Any]]


def own_moments() -> tuple[Moments, Moments]:
    """Return how Keras takes mean and variance: of rows of all replicas, and of inputs that may be masked."""
    return nn._compute_moments_sync, keras.layers.BatchNormalization._moments


@contextmanager
def moments_by(synchronized: Moments, masked: Moments) -> Iterator[None]:
    """While it lasts, these are called in place of :func:`own_moments`.

    Replaces ``nn._compute_moments_sync`` and ``BatchNormalization._moments``. Without it ``synchronized=True`` takes
    the statistics of one worker's rows.
    """
    layer, before = keras.layers.BatchNormalization, own_moments()
    nn._compute_moments_sync, layer._moments = synchronized, masked
    try:
        yield
    finally:
        nn._compute_moments_sync, layer._moments = before


def reduction_axes(layer: Any) -> list[int]:
    """Return the axes over which a layer of batch normalization takes its statistics.

    Replaces ``BatchNormalization._reduction_axes``. Without it masked rows count.
    """
    axes: list[int] = layer._reduction_axes
    return axes
