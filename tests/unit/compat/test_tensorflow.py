"""Private parts of TensorFlow."""

from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    tf = pytest.importorskip("tensorflow")

from dask_train.compat.tensorflow import (
    handle_name,
    is_op_determinism_enabled,
    registered_gradients,
    set_handle_name,
    unique_id,
)


def test_custom_gradients_of_a_graph_are_in_the_table():
    before = set(registered_gradients())

    @tf.custom_gradient
    def same(x):
        return x, lambda upstream: upstream

    tf.function(lambda x: same(x) + 1).get_concrete_function(tf.constant(1.0))
    added = [name for name in registered_gradients() if name not in before]
    assert added
    assert all(name.startswith("CustomGradient-") for name in added)
    for name in added:
        del registered_gradients()[name]
    assert set(registered_gradients()) == before


def test_determinism_is_off_by_default():
    assert is_op_determinism_enabled() is False


def test_keys_and_names_of_variables():
    one, other = tf.Variable(1.0), tf.Variable(1.0)
    assert len({unique_id(one), unique_id(one), unique_id(other)}) == 2
    plain = object()
    assert unique_id(plain) == id(plain)
    set_handle_name(one, "weights")
    assert handle_name(one) == "weights"
    set_handle_name(plain, "weights")
    assert handle_name(plain) is None
