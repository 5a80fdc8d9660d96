"""Steps, layers and losses of a user's own that compare rows of the global batch: SimCLR, CLIP, SupCon and others."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

import dask_train as dt


def unit(z: Any) -> Any:
    """Rows of length 1."""
    return z / ops.sqrt(ops.sum(z**2, axis=-1, keepdims=True) + 1e-6)


def cross_entropy(logits: Any, places: Any) -> Any:
    """By row, of the place that is right."""
    picked = ops.take_along_axis(logits, places[:, None], axis=1)[:, 0]
    return ops.logsumexp(logits, axis=1) - picked


def nt_xent(first: Any, second: Any) -> Any:
    """NT-Xent of two views of each row (Chen et al., 2020)."""
    rows, both = ops.shape(first)[0], ops.concatenate([unit(first), unit(second)])
    alike = ops.matmul(both, ops.transpose(both)) / 0.5
    alike = alike - 1e9 * ops.eye(2 * rows, dtype=alike.dtype)
    numbers = ops.arange(rows)
    return ops.mean(cross_entropy(alike, ops.concatenate([numbers + rows, numbers])))


def clip(images: Any, texts: Any, scale: Any) -> Any:
    """CLIP's symmetrical loss of pairs (Radford et al., 2021)."""
    alike = ops.exp(scale) * ops.matmul(unit(images), ops.transpose(unit(texts)))
    numbers = ops.arange(ops.shape(images)[0])
    return ops.mean(cross_entropy(alike, numbers) + cross_entropy(ops.transpose(alike), numbers)) / 2


def against(p: Any, labels: Any, others: Any, other_labels: Any) -> Any:
    """By row, how near rows of its class are among all others (Khosla et al., 2020, with the row itself)."""
    alike = ops.matmul(unit(p), ops.transpose(unit(others))) / 0.5
    same = ops.cast(ops.reshape(labels, (-1,))[:, None] == ops.reshape(other_labels, (-1,))[None], alike.dtype)
    return ops.logsumexp(alike, axis=1) - ops.logsumexp(alike - 1e9 * (1 - same), axis=1)


class Computes(keras.Model):
    """Its loss is a function of labels and outputs, by name, since functions of a class travel with it."""

    kind = "of all"

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):  # type: ignore[no-untyped-def]
        if self.kind == "own rows against all":
            return ops.mean(against(y_pred, y, *dt.keras.global_batch((y_pred, y))))
        if self.kind == "own rows summed":
            return ops.sum(against(y_pred, y, *dt.keras.global_batch((y_pred, y))))
        p, labels = dt.keras.global_batch([y_pred, y])
        by_row = against(p, labels, p, labels)
        return 1e-2 * ops.sum(by_row) if self.kind == "a sum" else ops.mean(by_row)

    @classmethod
    def made(cls, kind: str, optimizer: Any = None) -> Any:
        """Built and compiled."""
        x = layers.Input((8,))
        model = type(cls.__name__, (cls,), {"kind": kind})(x, layers.Dense(4)(layers.Dense(16, activation="tanh")(x)))
        model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.5))
        return model


class TwoTowers(keras.Model):
    """Trains two towers by its own step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.towers = [layers.Dense(6, activation="tanh") for _ in range(2 if kind == "clip" else 1)]
        self.tracker = keras.metrics.Mean(name="loss")

    def build(self, shape: Any) -> None:
        for tower in self.towers:
            tower.build((None, 4))
        self.scale = self.add_weight(shape=(), initializer="zeros", name="scale") if self.kind == "clip" else None
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def call(self, x: Any) -> Any:
        """Return what both towers make of a row's halves."""
        return self.towers[0](x[:, :4]), self.towers[-1](x[:, 4:])

    def loss_of(self, both: Any) -> Any:
        """Compare the rows of all workers; and keep weights small."""
        one, other = dt.keras.global_batch(both)
        found = clip(one, other, self.scale) if self.kind == "clip" else nt_xent(one, other)
        return found + 0.01 * ops.sum(self.towers[0].kernel ** 2)

    def train_step(self, *given: Any) -> Any:
        if keras.backend.backend() == "jax":
            return self.train_step_on_jax(*given)
        (data,) = given
        x, variables = data[0], self.trainable_variables
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = self.loss_of(self(x))
            gradients = tape.gradient(loss, variables)
        else:
            self.zero_grad()
            loss = self.loss_of(self(x))
            loss.backward()
            gradients = [variable.value.grad for variable in variables]
        self.optimizer.apply(gradients, variables)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def train_step_on_jax(self, state: Any, data: Any) -> Any:
        import jax

        trained, others, optimizer, metrics = state

        def loss_of(trained: Any) -> Any:
            with keras.StatelessScope(list(zip(self.trainable_variables, trained, strict=True))):
                return self.loss_of(self(data[0]))

        loss, gradients = jax.value_and_grad(loss_of)(trained)
        trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
        metrics = self.tracker.stateless_update_state(metrics, loss)
        return {"loss": self.tracker.stateless_result(metrics)}, (trained, others, optimizer, metrics)

    @classmethod
    def made(cls, kind: str) -> Any:
        """Built and compiled."""
        model = cls(kind)
        model.build((None, 8))
        model.compile(keras.optimizers.Adam(0.01))
        return model


class Contrasts(layers.Layer):
    """Adds a loss that compares the rows of the global batch."""

    def call(self, p: Any) -> Any:
        everyones = unit(dt.keras.global_batch(p))
        self.add_loss(0.1 * ops.mean(ops.matmul(everyones, ops.transpose(everyones)) ** 2))
        return p


class Centers(layers.Layer):
    """Takes the mean of the global batch off each row."""

    def call(self, p: Any) -> Any:
        return p - ops.mean(dt.keras.global_batch(p), axis=0)


def with_layer(layer: Any) -> Any:
    """A classifier with that layer."""
    model = keras.Sequential([layers.Input((8,)), layers.Dense(6, activation="tanh"), layer, layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
