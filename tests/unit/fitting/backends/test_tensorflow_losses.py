"""Sums over the rows of a batch are told from means over them, in the graph of a loss."""

from __future__ import annotations

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers, ops

tf = pytest.importorskip("tensorflow")

from dask_train.fitting.backends.base import StepError  # noqa: E402
from dask_train.fitting.backends.tensorflow_losses import addends, degree, of_all, sums_multiplied  # noqa: E402

WEIGHTS = tf.Variable([[0.5], [2.0]])
SCALE = tf.Variable(8.0)  # as of a LossScaleOptimizer


def rows(x):
    return tf.squeeze(tf.matmul(x, WEIGHTS), -1) ** 2


def activity(x):
    layer = layers.Activation("relu", activity_regularizer="l2")
    layer(x)
    return layer.losses[0]


def deep(x):
    for _ in range(200):
        x = x + x * tf.tanh(x)
    return x


SUMS = {
    "of a deep model": lambda x: tf.reduce_sum(deep(x)),
    "reduce_sum": lambda x: tf.reduce_sum(rows(x)),
    "of all values": lambda x: tf.reduce_sum(tf.matmul(x, WEIGHTS)),
    "keras": lambda x: ops.sum(ops.sum(ops.square(x), axis=-1)),
    "of a known batch": lambda x: tf.reduce_sum(rows(x)) / 32,
    "scaled": lambda x: -0.5 * tf.reduce_sum(rows(x)),
    "a product": lambda x: tf.tensordot(rows(x), rows(x), 1),
    "average loss": lambda x: tf.nn.compute_average_loss(rows(x), global_batch_size=64),
    "by column": lambda x: tf.reduce_mean(tf.reduce_sum(x, axis=0)),
    "a loss reduced to a sum": lambda x: keras.losses.MeanSquaredError(reduction="sum")(x, x + 1),
}
MEANS = {
    "reduce_mean": lambda x: tf.reduce_mean(rows(x)),
    "keras": lambda x: ops.mean(ops.sum(ops.square(x), axis=-1)),
    "a loss": lambda x: keras.losses.MeanSquaredError()(x, x + 1),
    "of weights": lambda x: keras.losses.MeanSquaredError()(x, x + 1, sample_weight=x[:, 0]),
    "by hand": lambda x: tf.reduce_sum(rows(x)) / tf.cast(tf.shape(x)[0], tf.float32),
    "by row": lambda x: tf.reduce_sum(rows(x) / tf.cast(tf.shape(x)[0], tf.float32)),
    "by size": lambda x: tf.reduce_sum(rows(x)) / tf.cast(tf.size(x), tf.float32),
    "weighted": lambda x: tf.reduce_sum(rows(x) * x[:, 0]) / tf.reduce_sum(x[:, 0]),
    "with weights that sum to one": lambda x: tf.reduce_sum(rows(x) * (x[:, 0] / tf.reduce_sum(x[:, 0]))),
    "of regularised weights": lambda x: tf.reduce_sum(WEIGHTS**2),
    "activity": activity,
    "sum of means": lambda x: ops.sum([ops.mean(rows(x)), ops.sum(ops.square(WEIGHTS))]),
    "the largest": lambda x: tf.reduce_max(rows(x)),
}
UNKNOWN = {
    "a root": lambda x: tf.sqrt(tf.reduce_sum(rows(x))),
    "of unknown lengths": lambda x: tf.reduce_mean(tf.reduce_sum(tf.zeros((tf.shape(x)[0], tf.shape(x)[0])), axis=1)),
    "called": lambda x: tf.numpy_function(lambda value: value, [tf.reduce_sum(x)], tf.float32),
}


def told(loss, of):
    found = []

    @tf.function(input_signature=[tf.TensorSpec((None, 2))], autograph=False)
    def step(x):
        found.append(of(loss(x)))
        return 0

    step.get_concrete_function()
    return found[0]


@pytest.mark.parametrize("name", SUMS)
def test_sums(name):
    assert told(SUMS[name], degree) == 1


@pytest.mark.parametrize("name", MEANS)
def test_means(name):
    assert told(MEANS[name], degree) == 0


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name):
    found = told(UNKNOWN[name], degree)
    assert found != found or name == "called"


def test_parts_of_a_loss():
    def loss(x):
        both = tf.reduce_mean(rows(x)) - 3.0 * tf.reduce_sum(rows(x))
        return ops.sum([both / 2.0, -tf.reduce_sum(WEIGHTS)])

    parts = told(loss, addends)
    assert [times for _, times in parts] == [0.5, -1.5, -1.0]


BESIDE_ALL = {
    "sum of all": (lambda own, everyones: tf.reduce_sum(everyones**2), False),
    "values by row of all": (lambda own, everyones: everyones[:, 0] ** 2, False),
    "sum of pairs of all": (lambda own, everyones: tf.reduce_sum(everyones @ tf.transpose(everyones)), False),
    "root of all": (lambda own, everyones: tf.sqrt(tf.reduce_sum(everyones**2)), False),
    "and a sum of its own": (lambda own, everyones: tf.reduce_mean(everyones) + tf.reduce_sum(own), True),
    "mean beside all": (lambda own, everyones: tf.reduce_mean(tf.nn.softmax(own @ tf.transpose(everyones))), False),
    "sum beside all": (lambda own, everyones: tf.reduce_sum(own @ tf.transpose(everyones)), None),
    "by row beside all": (lambda own, everyones: tf.reduce_max(own @ tf.transpose(everyones), axis=1), None),
    "by the number of all": (
        lambda own, everyones: tf.reduce_sum(own) / tf.cast(tf.shape(everyones)[0], tf.float32),
        None,
    ),
}


@pytest.mark.parametrize("name", BESIDE_ALL)
@pytest.mark.parametrize("nested", [False, True], ids=["step", "in a function"])
def test_rows_of_all_workers(name, nested):
    """Whether a sum is multiplied; None where it can't be told, which is refused."""
    loss, wanted = BESIDE_ALL[name]
    asked = []

    def factor(dtype):
        asked.append(dtype)
        return tf.constant(1.0, dtype)

    def derived(x):
        with tf.GradientTape() as tape:
            own = x @ WEIGHTS
            found = loss(own, of_all(own * 2.0))
        return tape.gradient(found, WEIGHTS)

    @tf.function(input_signature=[tf.TensorSpec((None, 2))], autograph=False)
    def step(x):
        return tf.function(derived, autograph=False)(x) if nested else derived(x)

    with sums_multiplied(factor, lambda: 0):
        if wanted is None:
            with pytest.raises(StepError, match="Gather all that it takes, targets and weights too"):
                step.get_concrete_function()
        else:
            step.get_concrete_function()
            assert bool(asked) == wanted


def test_factors_keep_their_digits():
    weights = tf.Variable([[1.0], [2.0]], dtype="float64")

    @tf.function(input_signature=[tf.TensorSpec((None, 2), "float64")], autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = 0.1 * tf.reduce_sum(x @ weights) + tf.reduce_mean(x @ weights) / 0.3
        return tape.gradient(loss, weights)

    with sums_multiplied(partial(tf.constant, 1.0), lambda: 0):
        found = step(tf.constant([[1.0, 3.0]], "float64"))
    np.testing.assert_allclose(found, [[0.1 + 1 / 0.3], [0.3 + 3 / 0.3]], rtol=1e-15)


def test_gradients():
    """Of what has values by row, of means, of sums, and of what is added up of all of them."""
    losses = [
        rows,
        lambda x: tf.reduce_mean(rows(x)),
        lambda x: 2.0 * tf.reduce_mean(rows(x)) - tf.reduce_sum(rows(x)) + tf.reduce_sum(WEIGHTS),
    ]
    losses += [lambda x, loss=losses[-1]: loss(x) * SCALE, lambda x, loss=losses[-1]: loss(x) * WEIGHTS[0, 0]]

    @tf.function(input_signature=[tf.TensorSpec((None, 2))], autograph=False)
    def step(x):
        found = []
        for loss in losses:
            with tf.GradientTape() as tape:
                value = loss(x)
            found.append(tape.gradient(value, WEIGHTS))
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = rows(x)
        return [*found, tape.gradient(value, x)]  # by inputs: as they are

    x = tf.constant([[1.0, 2.0], [3.0, -1.0]])
    by_row = tf.matmul(x, WEIGHTS) * 2
    summed, by_inputs = tf.matmul(x, by_row, transpose_a=True), by_row @ tf.transpose(WEIGHTS)
    with sums_multiplied(partial(tf.constant, 10.0), lambda: 0):
        found = step(x)
    several = summed - summed * 10 + 1
    by_weight = found.pop(4)  # which is no scale of the loss: so much of it is not known, and counts as a mean
    for ours, its in zip(found, [summed * 10, summed / 2, several, several * 8, by_inputs], strict=True):
        tf.debugging.assert_near(ours, its)
    values = 2.0 * tf.reduce_mean(rows(x)) - tf.reduce_sum(rows(x)) + tf.reduce_sum(WEIGHTS)
    tf.debugging.assert_near(by_weight, (summed - summed + 1) * WEIGHTS[0, 0] + [[values], [0.0]])
