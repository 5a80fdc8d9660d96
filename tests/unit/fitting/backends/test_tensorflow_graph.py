"""What the graph of a step tells of gradients: in which ways a table is looked up, and who keeps what is summed."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers, ops

tf = pytest.importorskip("tensorflow")

from dask_train.fitting.backends.tensorflow_graph import draws, may_be_kept, slices_below  # noqa: E402

WORDS, VALUES = ((None, 5), tf.int64), ((None, 5, 3), tf.float32)


@pytest.fixture
def table():
    found = layers.Embedding(7, 3)
    found.build((None, 5))
    return found


def pieces(table, loss, given):
    """For each place in which the table is looked up: whether all workers do alike, and whether rows come once."""
    found = []

    @tf.function(input_signature=[tf.TensorSpec(*given)], autograph=False)
    def step(batch):
        with tf.GradientTape() as tape:
            value = loss(batch)
        gradient = tape.gradient(value, table.embeddings.value)
        found.extend((piece.alike, piece.distinct) for piece in slices_below(gradient.indices, gradient.values))
        return 0

    step.get_concrete_function()
    return found


def test_by_row(table):
    assert pieces(table, lambda words: ops.mean(table(words)), WORDS) == [(False, False)]


def test_once_a_batch(table):
    numbers = tf.Variable(np.arange(5))
    assert pieces(table, lambda x: ops.mean(x + table(ops.arange(5))), VALUES) == [(True, False)]
    assert pieces(table, lambda x: ops.mean(x + table(numbers)), VALUES) == [(None, False)]
    assert pieces(table, lambda x: ops.mean(x + table(tf.range(tf.shape(x)[1]))), VALUES) == [(None, False)]


def test_in_several_ways(table):
    def loss(words):
        return ops.mean(table(words) * table(ops.arange(5))) + ops.mean(table(words[:, :1]))

    assert sorted(pieces(table, loss, WORDS)) == [(False, False), (False, False), (True, False)]


def test_each_word_once(table):
    def loss(words):
        distinct, places = tf.unique(tf.reshape(words, [-1]))
        return ops.mean(tf.gather(table(distinct), places))

    assert pieces(table, loss, WORDS) == [(False, True)]


class Keeps(keras.optimizers.SGD):
    """Keeps gradients as they are."""

    def update_step(self, gradient, variable, learning_rate):
        self.assign(self.momentums[0], gradient)


@pytest.mark.parametrize(
    ("optimizer", "keeps"),
    [
        (keras.optimizers.Adam(), False),
        (keras.optimizers.SGD(momentum=0.9), False),
        (keras.optimizers.AdamW(clipnorm=1.0, use_ema=True), False),
        (keras.optimizers.Lion(global_clipnorm=1.0), False),
        (keras.optimizers.Adam(gradient_accumulation_steps=2), True),  # in a branch
        (Keeps(momentum=0.9), True),
    ],
)
def test_what_an_optimizer_may_keep(optimizer, keeps):
    weight, found = keras.Variable(np.ones((2, 3), "float32")), []
    optimizer.build([weight])

    @tf.function(autograph=False)
    def step():
        summed = tf.numpy_function(lambda: np.ones((2, 3), "float32"), [], tf.float32)
        summed.set_shape((2, 3))
        optimizer.apply([summed], [weight])
        found.append(may_be_kept(summed))

    step.get_concrete_function()
    assert found == [keeps]


@pytest.mark.parametrize(
    ("step", "is_random"),
    [
        (lambda x: x + 1, False),
        (lambda x: x + tf.random.normal(tf.shape(x)), True),
        (lambda x: x * tf.random.stateless_uniform(tf.shape(x), [1, 2]), True),
        (tf.random.shuffle, True),
        (lambda x: tf.random.categorical(x, 2), True),
        (lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y + tf.random.normal(())), (0, x)), True),
        (lambda x: 2 * tf.function(lambda y: y + tf.random.uniform(()))(x), True),
    ],
)
def test_graphs_tell_whether_they_draw_random_numbers(step, is_random):
    graph = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec((None, 3))).graph
    assert draws(graph) is is_random
