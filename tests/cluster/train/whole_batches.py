"""Losses and metrics that look at several rows of a batch together, as users write them for ``compile``."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

import dask_train as dt


def correlation(y: Any, p: Any) -> Any:
    """One minus the correlation of outputs with targets over the batch."""
    y, p = y - ops.mean(y, axis=0), p - ops.mean(p, axis=0)
    return 1.0 - ops.mean(ops.sum(y * p, axis=0) / ops.sqrt(ops.sum(y**2, axis=0) * ops.sum(p**2, axis=0) + 1e-3))


def ranking(y: Any, p: Any) -> Any:
    """How far pairs of rows are in another order than their targets."""
    ahead = ops.sign(y[:, None, 0] - y[None, :, 0])
    return ops.mean(ops.softplus(-ahead * (p[:, None, 0] - p[None, :, 0])))


def largest(y: Any, p: Any) -> Any:
    """The largest error of the batch."""
    return ops.max(ops.square(y - p))


def from_the_middle(y: Any, p: Any) -> Any:
    """By row, the distance to the mean of the batch, besides the error."""
    return ops.mean(ops.square(p - ops.mean(p, axis=0)) + ops.abs(y - p), axis=-1)


def total(y: Any, p: Any) -> Any:
    """A sum over rows."""
    return 1e-2 * ops.sum(ops.square(y - p))


def root(y: Any, p: Any) -> Any:
    """The root of a mean."""
    return ops.sqrt(ops.mean(ops.square(y - p)) + 1e-3)


def supervised_contrastive(y: Any, p: Any) -> Any:
    """Rows of a class near each other, and far from others (Khosla et al., 2020)."""
    p = p / ops.sqrt(ops.sum(p**2, axis=-1, keepdims=True) + 1e-6)
    alike = ops.matmul(p, ops.transpose(p)) / 0.5
    labels = ops.reshape(y, (-1,))
    others = 1.0 - ops.cast(ops.arange(ops.shape(p)[0])[:, None] == ops.arange(ops.shape(p)[0])[None], p.dtype)
    same = ops.cast(labels[:, None] == labels[None], p.dtype) * others
    log_share = alike - ops.log(ops.sum(ops.exp(alike) * others, axis=1, keepdims=True) + 1e-6)
    return -ops.sum(same * log_share, axis=1) / (ops.sum(same, axis=1) + 1e-6)


def without_a_class(y: Any, p: Any) -> Any:
    """By row, with a mask that Keras takes of what is returned: cross-entropy, and a spread of the batch."""
    wrong = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True, ignore_class=0)
    return wrong + ops.cast(ops.reshape(y, (-1,)) != 0, p.dtype) * ops.mean(ops.square(p - ops.mean(p, axis=0)))


class SharesOfClasses(keras.losses.Loss):
    """Cross-entropy by row, beside how far the batch's mean prediction is from the batch's classes."""

    def call(self, y: Any, p: Any) -> Any:
        """Return a value a row."""
        labels = ops.one_hot(ops.cast(y, "int32"), 3, dtype=p.dtype)
        gap = ops.sum(ops.square(ops.mean(ops.softmax(p), axis=0) - ops.mean(labels, axis=0)))
        return keras.losses.categorical_crossentropy(labels, p, from_logits=True) + gap


class Everything(keras.losses.Loss):
    """Overrides the call itself."""

    def __call__(self, y: Any, p: Any, sample_weight: Any = None) -> Any:
        """Return one number."""
        found = ops.max(ops.abs(y - p))
        return found if sample_weight is None else found * ops.max(sample_weight)


def steps_beside_mean(y: Any, p: Any) -> Any:
    """By step of a series, with a mask: cross-entropy, and a spread over the batch."""
    wrong = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    return wrong + ops.mean(ops.square(p - ops.mean(p, axis=(0, 1))), axis=-1)


class Largest(keras.metrics.Metric):
    """Keeps a maximum, which is no sum over rows."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y: Any, p: Any, sample_weight: Any = None) -> None:
        """Take a batch in."""
        found = ops.cast(ops.max(ops.abs(ops.cast(y, p.dtype) - p)), self.dtype)
        self.value.assign(ops.maximum(self.value, found))

    def result(self) -> Any:
        """Return the largest one."""
        return ops.convert_to_tensor(self.value)


class Confident(Largest):
    """The largest output of a row that weighs more than 1."""

    def update_state(self, y: Any, p: Any, sample_weight: Any = None) -> None:
        """Take a batch in."""
        found = ops.max(p, axis=-1)
        if sample_weight is not None:
            found = ops.where(sample_weight > 1, found, ops.zeros_like(found))
        self.value.assign(ops.maximum(self.value, ops.cast(ops.max(found), self.dtype)))


def ordered_pairs(y: Any, p: Any) -> Any:
    """The share of pairs of rows whose outputs are in the order of their targets."""
    ordered = ops.sign(y[:, None, 0] - y[None, :, 0]) == ops.sign(p[:, None, 0] - p[None, :, 0])
    return ops.mean(ops.cast(ordered, "float64"))


def network(units: int, loss: Any, optimizer: Any = None, **compiled: Any) -> keras.Model:
    """A small model with that loss."""
    model = keras.Sequential([layers.Input((8,)), layers.Dense(16, activation="tanh"), layers.Dense(units)])
    model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.5), loss, **compiled)
    return model


def embedding(loss: Any) -> keras.Model:
    """Rows of length 1, whose classes are compared."""
    x = layers.Input((8,))
    model = keras.Model(x, layers.UnitNormalization()(layers.Dense(4)(layers.Dense(16, activation="tanh")(x))))
    model.compile(keras.optimizers.SGD(0.01), loss)
    return model


def of_numbers(loss: Any, **compiled: Any) -> keras.Model:
    """Outputs without an axis: a number a row."""
    x = layers.Input((8,))
    model = keras.Model(x, layers.Reshape(())(layers.Dense(1, activation="sigmoid")(x)))
    model.compile(keras.optimizers.SGD(0.05), loss, **compiled)
    return model


def in_half_precision(policy: str, loss: Any) -> keras.Model:
    """Computes in 16 bits and keeps weights of 32; Keras scales the loss where they are float16."""
    options = {"dtype": policy}
    model = keras.Sequential(
        [layers.Input((8,)), layers.Dense(16, activation="tanh", **options), layers.Dense(2, **options)]
    )
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["mae"], auto_scale_loss=policy == "mixed_float16")
    return model


def of_steps(loss: Any, **compiled: Any) -> keras.Model:
    """Masked steps of a series."""
    ids = layers.Input((5,), dtype="int64")
    model = keras.Model(ids, layers.Dense(3)(layers.Embedding(20, 4, mask_zero=True)(ids)))
    model.compile(keras.optimizers.SGD(0.05), loss, **{"metrics": ["accuracy"], **compiled})
    return model


class UpToLongest(layers.Layer):
    """Leaves off the steps that all rows of a batch mask."""

    def call(self, ids: Any) -> Any:
        """Return ids of the longest row's length."""
        if str(getattr(ids, "device", "")) == "meta":  # torch looks at shapes
            return ids
        return ids[:, : ops.max(ops.sum(ops.cast(ids != 0, "int32"), axis=1))]


def of_unequal_lengths(loss: Any) -> keras.Model:
    """As many steps as the longest row that a worker has."""
    ids = layers.Input((5,), dtype="int64")
    model = keras.Model(ids, layers.Dense(3)(layers.Embedding(20, 4)(UpToLongest()(ids))))
    model.compile(keras.optimizers.SGD(0.05), loss)
    return model


class Cut(keras.Model):
    """Leaves off the last two steps of inputs and targets where none of the rows has them."""

    gathers = False

    def cut(self, data: Any) -> Any:
        """Return inputs, with zeros for what rows don't have, and targets."""
        ids, y = data
        has_all = ids[:, :1] == 0
        steps = ops.arange(5)[None] < ops.where(has_all, 5, 3)
        lengths = ops.where(has_all[:, 0], 5, 3)
        longest = ops.max(dt.keras.global_batch(lengths) if self.gathers else lengths)
        return ops.where(steps, ids, ops.zeros_like(ids))[:, :longest], y[:, :longest]

    def train_step(self, data: Any) -> Any:
        """Train on the steps that some row has."""
        return super().train_step(self.cut(data))

    def test_step(self, data: Any) -> Any:
        """Score the steps that some row has."""
        return super().test_step(self.cut(data))


class CutTogether(Cut):
    """Leaves off what none of the rows of all workers has."""

    gathers = True


def cut(kind: Any, loss: Any, *, masks: bool) -> keras.Model:
    """A model whose steps leave off some of the data."""
    ids = layers.Input((None,), dtype="int64")
    model = kind(ids, layers.Dense(3)(layers.Embedding(20, 4, mask_zero=masks)(ids)))
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    return model


def of_texts(*, masks: bool) -> keras.Model:
    """Takes the mean over the words of texts, which are as long as the longest of a batch."""
    texts = layers.Input((), dtype="string")
    words = layers.Embedding(20, 4, mask_zero=masks)(layers.TextVectorization(vocabulary=list("abcdefgh"))(texts))
    model = keras.Model(texts, layers.Dense(3)(layers.GlobalAveragePooling1D()(words)))
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def spread_of_steps(y: Any, p: Any) -> Any:
    """Of outputs alone."""
    return ops.mean(ops.square(p - ops.mean(p, axis=0)))


def of_two(value: Any) -> keras.Model:
    """Two outputs, one with a loss of Keras' own."""
    x = layers.Input((8,))
    both = layers.Dense(8, activation="tanh")(x)
    outputs = {"value": layers.Dense(2, name="value")(both), "late": layers.Dense(1, name="late")(both)}
    model = keras.Model(x, outputs)
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.5),
        {"value": value, "late": keras.losses.BinaryCrossentropy(from_logits=True)},
        loss_weights={"value": 0.5, "late": 2.0},
        metrics={"value": ["mae", ordered_pairs], "late": [Largest(), keras.metrics.AUC(from_logits=True, name="auc")]},
    )
    return model
