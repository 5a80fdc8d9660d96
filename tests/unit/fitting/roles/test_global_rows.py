"""What is computed of all workers' rows has the value and the derivative that one process has."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.compiled import compiled_of_all
from dask_train.fitting.roles.global_rows import GlobalRows
from dask_train.fitting.roles.gradients import RowFraction

X = np.random.default_rng(0).normal(size=(7, 3)).astype("f4")
SHARES = [slice(0, 4), slice(4, 7), slice(7, 7)]


def share_of(rank: int) -> tuple[RowFraction, np.ndarray]:
    """A worker's part of the batch, and its rows; some row, which weighs nothing, where it has none."""
    share, rows = RowFraction(), X[SHARES[rank]]
    share.weight, share.rows, share.global_rows = len(rows) / 7, max(1, len(rows)), 7
    return share, rows if len(rows) else X[:1]


def spread(p):
    """A loss that compares rows."""
    return tf.reduce_sum(tf.reduce_max(tf.square(p - tf.reduce_mean(p, 0)), 0)) + tf.sqrt(tf.reduce_sum(p**2))


def derivative(loss, x, weight):
    with tf.GradientTape() as tape:
        found = loss(tf.linalg.matmul(x, weight))
    return found, tape.gradient(found, weight)


def test_a_loss_of_all_rows_is_that_of_one_process(on_each_rank):
    weight = np.random.default_rng(1).normal(size=(3, 2)).astype("f4")
    wanted, wanted_gradient = derivative(spread, X, tf.Variable(weight))

    def taken(rank, replicas):
        share, mine = share_of(rank)
        rows, variable = GlobalRows(replicas, backend_of("tensorflow"), share), tf.Variable(weight)

        found, gradient = derivative(lambda p: spread(rows.of([p], 1)[0]), mine, variable)
        return float(found), share.weight * np.array(gradient)

    found = on_each_rank(taken, 3)
    np.testing.assert_allclose([value for value, _ in found], float(wanted), rtol=1e-6)
    np.testing.assert_allclose(sum(gradient for _, gradient in found), wanted_gradient, rtol=1e-4)


def test_rows_of_many_lengths_take_memory_for_few(on_each_rank):
    def taken(rank, replicas):
        share, mine = share_of(rank)
        rows = GlobalRows(replicas, backend_of("tensorflow"), share, in_own_steps=True)
        gradients, tops = [], set()
        for length in range(100, 160):
            own = tf.constant(np.repeat(mine[:, :1], length, 1))
            with tf.GradientTape() as tape:
                tape.watch(own)
                loss = tf.reduce_sum(rows.of([own], 1)[0] ** 2) * (rank + 1)
            gradients.append(share.weight * tape.gradient(loss, own)[0, -1].numpy())
            tops.add(replicas.top)
        return gradients, len(tops)

    weights = sum(share_of(rank)[0].weight * (rank + 1) for rank in range(3))
    for rank, (gradients, num_tops) in enumerate(on_each_rank(taken, 3)):
        share, mine = share_of(rank)
        np.testing.assert_allclose(gradients, [2 * mine[0, 0] * weights if share.weight else 0.0] * 60, rtol=1e-5)
        assert num_tops < 10


def test_several_rows_for_each_row(on_each_rank):
    def taken(rank, replicas):
        share, mine = share_of(rank)
        found = GlobalRows(replicas, backend_of("tensorflow"), share).of(
            [tf.reshape(mine, (-1,)), tf.constant(mine)], 0
        )
        return [np.array(one) for one in found]

    for flat, rows in on_each_rank(taken, 3):
        np.testing.assert_array_equal(flat, X.ravel())
        np.testing.assert_array_equal(rows, X)


@pytest.mark.parametrize("tensor", [tf.constant(3.0), tf.zeros((5, 2))], ids=["a number", "another number of rows"])
def test_what_has_no_row_for_each_row_is_refused(on_each_rank, tensor):
    def taken(_, replicas):
        share, _ = share_of(0)
        with pytest.raises(ValueError, match="has no row for each of 4 rows, so it can't be put together"):
            GlobalRows(replicas, backend_of("tensorflow"), share).of([tensor], 1)
        return True

    assert on_each_rank(taken, 1) == [True]


def test_text_is_refused(on_each_rank):
    def taken(_, replicas):
        share, _ = share_of(0)
        GlobalRows(replicas, backend_of("tensorflow"), share).of([tf.constant(["a"] * 4)], 0)

    with pytest.raises(Exception, match="Text can't be put together"):
        on_each_rank(taken, 1)


def test_keras_classes_are_as_they_were_afterwards():
    from keras.src.trainers.compile_utils import CompileLoss, MetricsList

    before, of_texts = MetricsList.update_state, keras.layers.TextVectorization.call

    class Replicas:
        size = 2

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def fails():
        with compiled_of_all(Replicas(), backend_of("tensorflow"), RowFraction(), keras.Sequential()):
            assert MetricsList.update_state is not before
            model._compile_loss(keras.ops.ones((2, 1)), keras.ops.ones((2, 1)))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert MetricsList.update_state is before
    assert keras.layers.TextVectorization.call is of_texts
    assert "_flat_losses" not in vars(CompileLoss)
    assert len(model._compile_loss._flat_losses) == 1
