"""Keras' own moments are there again afterwards; what is summed, in graphs too, is in ``roles/test_moments.py``."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import nn

from dask_train.fitting.backends.tensorflow_moments import moments_of_all


def doubled(tensors):
    """As of two workers with the same rows."""
    return [tensor * 2 for tensor in tensors]


def test_moments_are_those_of_sums_while_it_lasts():
    before = nn._compute_moments_sync, keras.layers.BatchNormalization._moments
    rows = tf.constant(np.random.default_rng(0).normal(size=(6, 2)))
    with moments_of_all(doubled, doubled, lambda: False):
        found = tf.function(lambda x: keras.ops.moments(x, axes=[0], synchronized=True))(rows)
    np.testing.assert_allclose(found, tf.nn.moments(rows, [0]), rtol=1e-12)
    assert (nn._compute_moments_sync, keras.layers.BatchNormalization._moments) == before


def test_derivatives_of_derivatives_are_summed_too():
    rows = tf.Variable(np.random.default_rng(0).normal(size=(4, 2)))

    def second():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                mean, variance = keras.ops.moments(rows, axes=[0], synchronized=True)
                loss = tf.reduce_sum(mean**3 + tf.exp(variance))
            slope = tf.reduce_sum(inner.gradient(loss, rows) ** 2)
        return outer.gradient(slope, rows)

    with moments_of_all(list, list, lambda: False):
        found = second()
    np.testing.assert_allclose(found, second(), rtol=1e-9)
