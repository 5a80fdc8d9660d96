"""``dt.keras.global_batch`` on several ranks: values, derivatives, masks, and what it refuses."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend import get_keras_mask, set_keras_mask
from keras.src.losses import loss as loss_module

import dask_train as dt
from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.aside import rehearsing, tried_gathers, with_all_rows
from dask_train.fitting.roles.global_batch import global_batch_of_all
from dask_train.fitting.roles.global_rows import GlobalRows
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.reductions import _Reducing

X = np.random.default_rng(0).normal(size=(7, 3)).astype("f4")
WEIGHT = np.random.default_rng(1).normal(size=(3, 2)).astype("f4")
SHARES = [slice(0, 4), slice(4, 7), slice(7, 7)]


def share_of(rank: int) -> tuple[RowFraction, np.ndarray]:
    """A worker's part of the batch, and its rows; some row, which weighs nothing, where it has none."""
    share, rows = RowFraction(), X[SHARES[rank]]
    share.weight, share.rows, share.global_rows = len(rows) / 7, max(1, len(rows)), 7
    return share, rows if len(rows) else X[:1]


class Ranks:
    """For what asks nobody."""

    size, rank = 1, 0

    def channel(self, shapes, dtype):
        return None


@pytest.mark.parametrize(
    "loss",
    [
        lambda own, everyones: tf.reduce_sum(tf.square(everyones - tf.reduce_mean(everyones, 0))),
        lambda own, everyones: tf.reduce_mean(tf.reduce_logsumexp(own @ tf.transpose(everyones), 1)),
        lambda own, everyones: tf.reduce_mean(tf.tanh(own - tf.reduce_mean(everyones**2, 0))),
    ],
    ids=["of all rows", "own rows against all", "own rows by statistics of all"],
)
def test_the_derivative_is_that_of_one_process(on_each_rank, loss):
    def taken(rank, replicas):
        share, mine = share_of(rank)
        variable = tf.Variable(WEIGHT)
        gather = GlobalRows(replicas, backend_of("tensorflow"), share, in_own_steps=True)
        with tf.GradientTape() as tape:
            own = mine @ variable
            found = loss(own, gather.of([own], 1)[0])
        return share.weight * float(found), share.weight * np.array(tape.gradient(found, variable))

    variable = tf.Variable(WEIGHT)
    with tf.GradientTape() as tape:
        own = X @ variable
        wanted = loss(own, own)
    found = on_each_rank(taken, 3)
    np.testing.assert_allclose(sum(value for value, _ in found), float(wanted), rtol=1e-5)
    np.testing.assert_allclose(sum(each for _, each in found), tape.gradient(wanted, variable), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(on_each_rank, dtype):
    def taken(rank, replicas):
        share, mine = share_of(rank)
        gather = GlobalRows(replicas, backend_of("tensorflow"), share, in_own_steps=True)
        own = tf.cast(mine, dtype)
        with tf.GradientTape() as tape:
            tape.watch(own)
            found = tf.reduce_sum(gather.of([own], 1)[0] * 300.0)
        gradient = tape.gradient(found, own)
        assert gradient.dtype == dtype
        return np.array(tf.cast(gradient, "float32")) * share.weight

    for part in on_each_rank(taken, 2):
        np.testing.assert_allclose(part, np.full_like(part, 300.0), rtol=1e-2)


@pytest.mark.parametrize("rows", [3, 8])
def test_a_tensor_has_a_row_for_each_row(on_each_rank, rows):
    def taken(_, replicas):
        share, _ = share_of(0)
        with pytest.raises(Exception, match=r"tensor of shape \(8, 3\) in a batch of 4 rows|has no row for each of 4"):
            GlobalRows(replicas, backend_of("tensorflow"), share, in_own_steps=True).of([tf.zeros((rows, 3))], 1)
        return True

    assert on_each_rank(taken, 1) == [True]


def test_masks_go_with_their_rows():
    share, rows = share_of(0)
    share.weight, share.global_rows = 1.0, 4
    tensor, mask = tf.constant(rows), tf.constant([[True, False, True]] * 4)
    set_keras_mask(tensor, mask)

    class Alone(Ranks):
        def channel(self, shapes, dtype):
            return type("Channel", (), {"total": np.zeros(shapes[0], dtype), "totals": [np.zeros(shapes[0], dtype)]})

        def exchange(self, channel, mine, places):
            channel.total[places[0]] = mine
            channel.totals[0][:] = channel.total
            return channel.totals

    with global_batch_of_all(Alone(), backend_of("tensorflow"), share):
        found = dt.keras.global_batch({"x": tensor})["x"]
    assert found is not tensor
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(get_keras_mask(found), mask)


def test_a_step_of_one_process_has_its_own_rows():
    """No other rank is asked: there is none that answers."""
    tensor = tf.constant(X)
    with global_batch_of_all(Ranks(), backend_of("tensorflow"), RowFraction()):
        with with_all_rows():
            assert dt.keras.global_batch(tensor) is tensor
        with rehearsing():
            gathers = tried_gathers()
            gathers.begin()
            np.testing.assert_array_equal(dt.keras.global_batch(tensor), X)
            gathers.begin()
            np.testing.assert_array_equal(dt.keras.global_batch(tensor[:2]), X)
    assert tried_gathers() is None


def test_sums_of_keras_after_it_are_refused():
    share = RowFraction()
    reducing = _Reducing(loss_module.reduce_weighted_values, Ranks(), backend_of("tensorflow"), share)
    share.weight = 0.5
    values = keras.ops.ones((4,))
    assert float(reducing(values, reduction="sum")) == 8.0
    assert not share.has_gathered
    share.note_gathered()
    with pytest.raises(ValueError, match=r"reduction='sum' comes after dt\.keras\.global_batch"):
        reducing(values, reduction="sum")
    assert float(reducing(values)) == 1.0
    share.weight = 0.5  # the next batch
    assert float(reducing(values, reduction="sum")) == 8.0
    assert share.has_gathered
