"""Gradients are applied behind all else of a step; the moment before, what is a worker's own is as after the step."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.applying import ApplyLast, at_every_apply

pytestmark = pytest.mark.backends

BACKEND = keras.backend.backend()
_random = np.random.default_rng(0)
BATCH = _random.normal(size=(6, 4)).astype("f4"), _random.normal(size=(6, 1)).astype("f4")


def made(**compiled):
    keras.utils.set_random_seed(1)
    parts = [layers.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(1)]
    model = keras.Sequential(parts)
    jit_compile = "auto" if BACKEND == "jax" else False
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"], jit_compile=jit_compile, **compiled)
    model.optimizer.build(model.trainable_variables)
    return model


def own(model):
    return [*model.non_trainable_variables, *(one for metric in model.metrics for one in metric.variables)]


def values(variables):
    return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]


def stepped(model, put_off):
    """What is the worker's own, and what is trained, at the moment before gradients are applied, in each of 3 steps."""
    backend, seen = backend_of(BACKEND), []

    def known():
        seen.append((values(own(model)), values(model.trainable_variables)))

    last = ApplyLast(backend, model, lambda: own(model), known)

    def instead(_, grads, variables, go_on):
        return last.put_off(lambda: go_on(grads)) if put_off else go_on(grads)

    with at_every_apply(instead):
        step = last.step(model.train_step) if put_off else model.train_step
        run = backend.compiled(step, model, BATCH, at_once=True)
        after = []
        for _ in range(3):
            run(BATCH)
            after.append((values(own(model)), values(model.trainable_variables)))
    return seen, after


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_step_comes_to_the_same_and_its_own_state_is_known_before_weights_change(run_eagerly):
    model = made(run_eagerly=run_eagerly)
    begun = values(model.trainable_variables)
    seen, after = stepped(model, put_off=True)
    assert len(seen) == 3
    for (known, weights), (own_after, _), before in zip(seen, after, [begun, *(one for _, one in after)], strict=False):
        for one, other in zip(known, own_after, strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(weights, before, strict=True):
            np.testing.assert_array_equal(one, other)
    assert any((one != other).any() for one, other in zip(begun, after[0][1], strict=True))
    _, wanted = stepped(made(run_eagerly=run_eagerly), put_off=False)
    for (_, one), (_, other) in zip(after, wanted, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_outside_of_a_step_nothing_is_put_off():
    last = ApplyLast(backend_of(BACKEND), None, list, lambda: pytest.fail("no step"))
    assert last.put_off(lambda: 5) == 5


def test_what_applies_gradients_twice_is_refused():
    last = ApplyLast(backend_of(BACKEND), None, list, lambda: None)

    def step(_):
        last.put_off(lambda: None)
        last.put_off(lambda: None)

    with pytest.raises(ValueError, match="several times in a step"):
        last.step(step)(None)
