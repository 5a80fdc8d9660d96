"""Layers that synchronise statistics have those of all workers' rows, and so have derivatives through them."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.aside import rehearsing
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.moments import _SummedMoments, moments_of_all

ROWS = np.random.default_rng(0).normal(size=(7, 3, 2)) / 2
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]], bool)
TARGETS = np.random.default_rng(1).normal(size=ROWS.shape)


def layers():
    found = [keras.layers.BatchNormalization(synchronized=True, dtype="float64") for _ in range(2)]
    for layer in found:
        layer.build((None, 3, 2))
    return found


def derived(both, rows, mask, targets):
    """A mean over rows, and its derivative by a weight."""
    weight = tf.Variable(1.5, dtype=tf.float64)
    with tf.GradientTape() as tape:
        x = tf.constant(rows) * weight + tf.constant(rows) ** 2 / 4
        for layer in both:
            x = layer(tf.tanh(x) * weight, training=True, mask=mask)
        loss = tf.reduce_mean((x - targets) ** 2)
    return [np.array(one) for one in (loss, tape.gradient(loss, weight))]


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("cuts", [[4, 7], [6, 7, 7]], ids=["uneven", "one has no rows"])
def test_shares_have_the_loss_and_the_derivatives_of_the_whole(on_each_rank, mask, cuts):
    whole = layers()
    wanted = derived(whole, ROWS, mask, TARGETS)
    ranks = [(layers(), slice(start, stop)) for start, stop in zip([0, *cuts], cuts, strict=False)]
    backend = backend_of("tensorflow")
    own = threading.local()  # Keras is changed once, for ranks that are threads here

    def part(rank, replicas):
        both, rows = ranks[rank]
        share = RowFraction()
        share.weight = (rows.stop - rows.start) / len(ROWS)
        rows = rows if share.weight else slice(0, 1)
        own.summing = _SummedMoments(replicas, share)
        found = derived(both, ROWS[rows], None if mask is None else mask[rows], TARGETS[rows])
        return [share.weight * one for one in found]

    with backend.moments_of_all(
        lambda tensors: backend.on_host(own.summing.forward, tensors),
        lambda tensors: backend.on_host(own.summing.backward, tensors),
        lambda: False,
    ):
        found = on_each_rank(part, len(ranks))
    np.testing.assert_allclose(np.sum(found, 0), wanted, rtol=1e-9, atol=1e-12)
    for both, _ in ranks:
        for layer, other in zip(both, whole, strict=True):
            np.testing.assert_allclose(layer.moving_mean, other.moving_mean, rtol=1e-12)
            np.testing.assert_allclose(layer.moving_variance, other.moving_variance, rtol=1e-12)


def test_what_is_tried_and_what_comes_later_is_of_this_worker_alone():
    class Asked:
        def channel(self, *_):
            pytest.fail("others are asked")

    with moments_of_all(Asked(), backend_of("tensorflow"), RowFraction()), rehearsing():
        found = derived(layers(), ROWS, MASK, TARGETS)
    np.testing.assert_array_equal(found, derived(layers(), ROWS, MASK, TARGETS))
