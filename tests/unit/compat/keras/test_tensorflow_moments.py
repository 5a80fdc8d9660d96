"""Moments of batch normalization on TensorFlow, replaced for a while."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    tf = pytest.importorskip("tensorflow")
    import keras

from dask_train.compat.keras.tensorflow_moments import moments_by, own_moments, reduction_axes

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow alone")


@pytest.mark.parametrize("synchronized", [False, True])
def test_a_layer_takes_the_moments_that_it_is_given_for_a_while(synchronized):
    x = np.arange(6, dtype="f4").reshape(3, 2)
    layer = keras.layers.BatchNormalization(synchronized=synchronized, epsilon=0.0)
    expected = layer(x, training=True)
    assert reduction_axes(layer) == [0]
    sync, masked = own_moments()
    asked = []

    def of_sync(*args, **kwargs):
        asked.append("synchronized")
        return tf.zeros(2), tf.ones(2)

    def of_masked(self, inputs, mask):
        asked.append("masked")
        return masked(self, inputs, mask)

    with moments_by(of_sync, of_masked):
        found = layer(x, training=True)
    assert asked == (["masked", "synchronized"] if synchronized else ["masked"])
    np.testing.assert_allclose(found, x if synchronized else expected)
    assert own_moments() == (sync, masked)
