"""Numbers out of a model as arrays, and in again."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.keras_models import state
from dask_train.keras_models.state import ArrayStore


class WithBlock(keras.Model):
    """Layers that get their weights when they are called."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)


class OnlyTrains(keras.Model):
    """Nobody calls it."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self.dense.build((None, 3))

    def train_step(self, data):
        return {}


def made(*more):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2), layers.Dropout(0.5, seed=3), *more])
    model.compile("adam", "mse")
    return model


def test_what_is_built():
    assert state.is_built(made())
    model = WithBlock()
    assert not state.is_built(model)
    model(np.zeros((1, 3)))
    assert state.is_built(model)
    assert state.is_built(OnlyTrains()), "though it is never called"


def test_what_a_model_compares_with_targets():
    assert state.compared_by(made()) == (True, False)
    model = WithBlock()
    model.compile("adam", metrics=["mae"])
    assert state.compared_by(model) == (False, True)
    assert state.compared_by(WithBlock()) == (False, False)


def test_the_first_layer_that_keeps_state():
    assert state.stateful_layer(made()) is None
    kept = layers.GRU(2, stateful=True)
    model = keras.Sequential([keras.Input((4, 3), batch_size=1), layers.GRU(2, return_sequences=True), kept])
    assert state.stateful_layer(model) is kept


def test_weights_go_out_and_in_again():
    model, other = made(), made()
    keys, arrays = state.save_layers(model)
    assert all(len(key) == 2 for key in keys)
    state.load_layers(other, keys, arrays)
    for one, another in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, another)


def test_weights_of_another_model_are_refused():
    keys, arrays = state.save_layers(made(layers.Dense(2)))
    with pytest.raises(ValueError, match=r"The rebuilt model has no layer at .* for \d arrays"):
        state.load_layers(made(), keys, arrays)
    keys, arrays = state.save_layers(made(layers.Dense(5)))
    with pytest.raises(ValueError, match="dense"):
        state.load_layers(made(layers.Dense(4)), keys, arrays)


def test_seeds_are_what_is_no_weight():
    (seed,) = state.seed_states(made())
    assert "seed" in seed.path
    assert state.seed_states(WithBlock()) == []


def test_a_snapshot_is_not_changed_by_training():
    variable = keras.Variable(np.arange(3.0))
    before = state.as_array(variable)
    variable.assign([7.0, 8.0, 9.0])
    np.testing.assert_array_equal(before, [0.0, 1.0, 2.0])
    assert state.as_array(np.asfortranarray(np.zeros((2, 3)))).flags.c_contiguous


def test_assigned_arrays_have_to_be_as_many():
    variables = [keras.Variable(np.zeros(2)) for _ in range(2)]
    state.assign(variables, [np.ones(2), np.full(2, 2.0)], "the optimizer")
    assert [np.asarray(variable).tolist() for variable in variables] == [[1.0, 1.0], [2.0, 2.0]]
    with pytest.raises(ValueError, match="has 2 variables of the optimizer for 1 arrays"):
        state.assign(variables, [np.ones(2)], "the optimizer")


def test_variables_in_attributes_go_by_their_places():
    tensorflow = pytest.importorskip("tensorflow")

    def with_variable(shape=(2,)):
        model = made()
        model.layers[0].own = tensorflow.Variable(np.arange(np.prod(shape)).reshape(shape) + 1.0, name="own")
        return model

    described, arrays = state.save_unknown(with_variable())
    assert [array.tolist() for array in arrays] == [[1.0, 2.0]]
    other = with_variable()
    other.layers[0].own.assign([0.0, 0.0])
    assert state.load_unknown(other, described, arrays) == []
    assert other.layers[0].own.numpy().tolist() == [1.0, 2.0]
    (missing,) = state.load_unknown(made(), described, arrays)
    assert missing.startswith("own")
    assert len(state.load_unknown(with_variable((3,)), described, arrays)) == 1


def test_optimizers_are_held_once_wherever_they_are():
    model = made()
    model.layers[0].also = model.optimizer
    ((optimizer, places),) = state.held_optimizers(model)
    assert optimizer is model.optimizer
    assert len(places) == 2
    model.optimizer.build(model.trainable_variables)
    assert len(state.optimizer_variables(model)) == len(model.optimizer.variables)
    wrapped = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    assert state.innermost(wrapped) is wrapped.inner_optimizer
    assert state.innermost(optimizer) is optimizer


def test_a_store_knows_what_lies_below_a_path():
    store = ArrayStore()
    assert store
    store.make("layers/dense")["0"] = np.zeros(2)
    assert store.has_path("layers")
    assert store.has_path("layers/dense")
    assert not store.has_path("layers/den")
    assert store.get("layers/other") == {}
    assert store.taken == {"layers/other"}


def test_weights_are_taken_whole_within_a_layer_of_mixed_precision():
    taken = []

    class Taking(keras.layers.Dense):
        def call(self, inputs):
            taken.append(state.as_array(self.kernel))
            return super().call(inputs)

    layer = Taking(3, dtype="mixed_bfloat16")
    layer(np.ones((2, 5), np.float32))
    assert taken[-1].dtype == np.float32
    np.testing.assert_array_equal(taken[-1], state.as_array(layer.kernel))
