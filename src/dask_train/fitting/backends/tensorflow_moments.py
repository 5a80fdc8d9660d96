"""Statistics of a batch that lies in parts on several workers, and their derivatives, on TensorFlow.

Keras' ``BatchNormalization(synchronized=True)`` divides sums over rows by their count. These sums are summed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from dask_train.compat.keras.tensorflow_moments import moments_by, own_moments, reduction_axes

# Tensors of the same shapes and dtypes, of all workers.
Summed = Callable[[Sequence[Any]], list[Any]]


@contextmanager
def moments_of_all(forward: Summed, backward: Summed, is_aside: Callable[[], bool]) -> Iterator[None]:
    """Give layers that synchronise their statistics those of all workers; see the backend's method."""

    @tf.custom_gradient  # type: ignore[untyped-decorator,unused-ignore]
    def total(*parts: Any) -> Any:
        return tuple(forward(parts)), spread

    @tf.custom_gradient  # type: ignore[untyped-decorator,unused-ignore]
    def spread(*grads: Any) -> Any:
        return tuple(backward(grads)), total  # each is the other one transposed

    without, own = own_moments()

    def moments(x: Any, axes: Any, keepdims: bool) -> tuple[Any, Any]:
        if is_aside():
            return without(x, axes, keepdims)
        values, squares, count = total(
            *(tf.reduce_sum(one, axis=axes, keepdims=True) for one in (x, tf.square(x), tf.ones_like(x)))
        )
        mean = values / count
        variance = tf.maximum(squares / count - tf.square(mean), 0.0)
        return (mean, variance) if keepdims else (tf.squeeze(mean, axes), tf.squeeze(variance, axes))

    def with_mask(self: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
        if mask is None or not self.synchronized or is_aside():
            return own(self, inputs, mask)
        axes = reduction_axes(self)
        counts = tf.cast(tf.broadcast_to(mask[..., None], tf.shape(inputs)), inputs.dtype)
        is_counted = tf.cast(counts, tf.bool)
        values, count = total(
            *(tf.reduce_sum(one, axis=axes, keepdims=True) for one in (tf.where(is_counted, inputs, 0), counts))
        )
        divisor = count + keras.backend.epsilon()
        mean = values / divisor
        (squares,) = total(tf.reduce_sum(tf.square(tf.where(is_counted, inputs - mean, 0)), axis=axes, keepdims=True))
        return tf.squeeze(mean), tf.squeeze(squares / divisor)

    with moments_by(moments, with_mask):
        yield
