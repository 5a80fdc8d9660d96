"""Gradients are seen where any optimizer applies them, once, outermost, and optimizers are left as they were."""

from __future__ import annotations

import sys

import cloudpickle
import keras
import numpy as np
import pytest

from dask_train.fitting.roles.applying import at_every_apply
from dask_train.keras_models.serialization import model_to_parts, parts_to_model


class Changes(keras.optimizers.SGD):
    """Changes gradients before it applies them."""

    def apply(self, grads, trainable_variables=None):
        return super().apply([-gradient for gradient in grads], trainable_variables)


def changed(optimizer, apply):
    """What an optimizer makes of a weight of 0 and a gradient of 1, and what was seen of it."""
    weight, seen = keras.Variable(np.zeros(1, "float32")), []
    optimizer.build([weight])

    def instead(who, grads, variables, go_on):
        seen.append((who is optimizer, float(grads[0][0]), [one is weight for one in variables]))
        return go_on([gradient * 2 for gradient in grads])

    with at_every_apply(instead):
        apply(optimizer, [keras.ops.ones(1)], [weight])
    return float(weight[0]), seen


WAYS = {
    "apply": lambda optimizer, grads, variables: optimizer.apply(grads, variables),
    "without variables": lambda optimizer, grads, variables: optimizer.apply(grads),
    "apply_gradients": lambda optimizer, grads, variables: optimizer.apply_gradients(
        zip(grads, variables, strict=True)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way(way):
    assert changed(keras.optimizers.SGD(0.5), WAYS[way]) == (-1.0, [(True, 1.0, [True])])


def test_before_a_subclass_changes_them():
    assert changed(Changes(0.5), WAYS["apply"]) == (1.0, [(True, 1.0, [True])])


def test_outside_of_a_loss_scaler():
    scaler = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0)
    assert changed(scaler, WAYS["apply_gradients"]) == (-0.25, [(True, 1.0, [True])])


def test_all_is_as_before():
    before = keras.optimizers.SGD.apply, Changes.apply, keras.optimizers.LossScaleOptimizer.apply
    with pytest.raises(ValueError, match="told"), at_every_apply(lambda *_: None):
        raise ValueError("told")
    assert (keras.optimizers.SGD.apply, Changes.apply, keras.optimizers.LossScaleOptimizer.apply) == before


def test_a_class_with_an_apply_of_its_own_travels_meanwhile_as_it_is():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        model.compile(Changes(0.1), "mse")
        with at_every_apply(lambda optimizer, grads, variables, go_on: go_on(grads)):
            header, arrays = model_to_parts(model)
        arrived = parts_to_model(header, arrays)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    weight = arrived.trainable_variables[0]
    before = weight.numpy()
    arrived.optimizer.apply([np.ones((2, 1), "f4"), np.ones(1, "f4")], arrived.trainable_variables)
    np.testing.assert_allclose(weight.numpy(), before + 0.1, rtol=1e-6)
