"""Models that compute losses of their own, in each place where Keras lets them."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


def rows_of(y: Any, p: Any) -> Any:
    """Mean squared errors by row."""
    return ops.mean(ops.square(y - p), axis=-1)


def mean(y: Any, p: Any) -> Any:
    return ops.mean(rows_of(y, p))


def summed(y: Any, p: Any) -> Any:
    return 0.01 * ops.sum(rows_of(y, p))


def mean_and_sum(y: Any, p: Any) -> Any:
    return mean(y, p) + summed(y, p)


def root(y: Any, p: Any) -> Any:
    return ops.sqrt(mean(y, p))


def masked(y: Any, p: Any) -> Any:
    """A mean over rows of which a mask is made here."""
    mask = ops.cast(y[:, 0] > 0, p.dtype)
    return ops.sum(mask * rows_of(y, p)) / ops.sum(mask)


def spread(y: Any, p: Any) -> Any:
    """Couples rows."""
    return mean(y, p) + ops.mean(ops.square(p - ops.mean(p, axis=0)))


def largest(y: Any, p: Any) -> Any:
    return ops.max(rows_of(y, p))


def noisy(y: Any, p: Any) -> Any:
    """A mean."""
    return mean(y, p + 0.1 * keras.random.normal(ops.shape(p), dtype=p.dtype))


def noisy_root(y: Any, p: Any) -> Any:
    return ops.sqrt(noisy(y, p))


def unseen(y: Any, p: Any) -> Any:
    """A root of which nothing can be told, since Keras knows nothing of its noise."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return root(y, p + tf.random.normal(tf.shape(p), dtype=p.dtype))
    import torch

    return root(y, p + torch.randn_like(p))


class Computes(keras.Model):
    """By ``compute_loss``."""

    loss_of: Any = None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):  # type: ignore[no-untyped-def]
        return type(self).loss_of(y, y_pred)


class Steps(keras.Model):
    """By ``train_step``."""

    loss_of: Any = None

    def train_step(self, data: Any) -> Any:
        x, y = data
        variables = self.trainable_variables
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = type(self).loss_of(y, self(x, training=True))
            gradients = tape.gradient(loss, variables)
        else:
            self.zero_grad()
            loss = type(self).loss_of(y, self(x, training=True))
            loss.backward()
            gradients = [variable.value.grad for variable in variables]
        self.optimizer.apply(gradients, variables)
        return {"loss": loss}


class Adds(layers.Layer):
    """By ``add_loss``."""

    loss_of: Any = None

    def call(self, p: Any) -> Any:
        self.add_loss(type(self).loss_of(ops.flip(ops.stop_gradient(p), -1), p))
        return p


def _layers(*more: Any) -> tuple[Any, Any]:
    x = layers.Input((8,))
    found = layers.Dense(4, activation="tanh")(x)
    for layer in more:
        found = layer(found)
    return x, found


def of_model(kind: type, loss: Any, *more: Any, **compiled: Any) -> Any:
    """A model that computes that loss; with these layers within."""
    x, hidden = _layers(*more)
    model = type(kind.__name__, (kind,), {"loss_of": staticmethod(loss)})(x, layers.Dense(2)(hidden))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.5), **compiled)
    return model


def of_layer(loss: Any) -> Any:
    """A model of Keras' own, one of whose layers adds that loss."""
    x, hidden = _layers(type("Adds", (Adds,), {"loss_of": staticmethod(loss)})())
    model = keras.Model(x, layers.Dense(2)(hidden))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


class Centers(layers.Layer):
    """Takes the mean of a batch off each row, and adds no loss."""

    def call(self, p: Any) -> Any:
        return p - ops.mean(p, axis=0)


def centered() -> Any:
    """A model with a loss of Keras' own, and statistics of a batch."""
    x, hidden = _layers(Centers())
    model = keras.Model(x, layers.Dense(2)(hidden))
    model.compile("sgd", "mse")
    return model


def in_half() -> Any:
    """A model in mixed precision."""
    x = layers.Input((8,))
    hidden = layers.Dense(4, activation="tanh", dtype="mixed_float16")(x)
    model = type("Computes", (Computes,), {"loss_of": staticmethod(mean)})(x, layers.Dense(2, dtype="float32")(hidden))
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)))
    return model
