"""Private parts of Keras: each does what its docstring says, on this version."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    keras = pytest.importorskip("keras")

from dask_train.compat.keras import compiled, internals, layers, optimizers, patches, saving

X, Y = np.ones((4, 2), "f4"), np.ones((4, 1), "f4")


def loss_of(model):
    return np.ravel(model.evaluate(X, Y, verbose=0))[0]


@pytest.fixture
def model():
    inner = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), inner])
    made.compile(keras.optimizers.Adam(0.5), "mse", metrics=["mae"], weighted_metrics=["mse"])
    made.optimizer.build(made.trainable_variables)
    return made


def test_layers_at_any_depth(model):
    kinds = [type(layer).__name__ for layer in layers.flatten_layers(model)]
    assert sorted(kinds) == [
        "BatchNormalization",
        "Dense",
        "Dense",
        "InputLayer",
        "InputLayer",
        "Sequential",
        "Sequential",
    ]
    assert len(layers.flatten_layers(model, include_self=False)) == len(kinds) - 1
    assert model.layers[0] in layers.inner_layers(model)


def test_a_layers_own_variables_also_of_a_frozen_one(model):
    norm = model.layers[1].layers[0]
    norm.trainable = False
    assert [v.name for v in layers.own_trainable(norm)] == ["gamma", "beta"]
    assert [v.name for v in layers.own_non_trainable(norm)] == ["moving_mean", "moving_variance"]
    assert layers.own_trainable(model) == []
    assert layers.own_variables_by_kind(norm) == [layers.own_trainable(norm), layers.own_non_trainable(norm), []]
    assert not layers.is_itself_trainable(norm)
    assert layers.is_itself_trainable(model)


def test_names_of_layers_and_variables(model):
    dense = model.layers[0]
    layers.set_identity(dense, name="first", path="net/first", trainable=False)
    assert (dense.name, dense.path, dense.trainable) == ("first", "net/first", False)
    assert dense.kernel.trainable, "inner parts have entries of their own"
    layers.set_variable_names(dense.kernel, "weights", "net/first/weights")
    assert (dense.kernel.name, dense.kernel.path) == ("weights", "net/first/weights")
    assert layers.is_autocast(dense.kernel)


def test_variables_after_a_layer_was_built(model):
    dense = model.layers[0]
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        dense.late = keras.layers.Dense(1)
    layers.unlock(dense)
    dense.late = keras.layers.Dense(1)


def test_losses_that_a_layer_forgets():
    layer = keras.layers.Dense(1, kernel_regularizer="l2")
    layer(X)
    layer.add_loss(keras.ops.sum(layer.kernel))
    layers.forget_losses(layer)
    assert layer.built


def test_how_a_model_is_called():
    class Net(keras.Model):
        def call(self, x):
            return x

    class Training(keras.Model):
        def call(self, x, training=False):
            return x

    assert not layers.takes_training(Net())
    assert layers.takes_training(Training())
    inputs = {name: keras.Input((2,), name=name) for name in "ab"}
    assert set(layers.named_inputs(keras.Model(inputs, inputs["a"] + inputs["b"]))) == {"a", "b"}
    assert layers.named_inputs(Net()) is None


def test_what_a_layer_was_made_with():
    class Wide(keras.layers.Layer):
        def __init__(self, width):
            super().__init__()

    assert layers.has_init_arguments(Wide(3))
    assert not layers.has_init_arguments(Wide(object()))


def test_variables_of_a_metric_alone():
    assert [v.name for v in layers.metric_variables(keras.metrics.Mean())] == ["total", "count"]


def test_a_feature_space_that_is_adapted_by_hand():
    def make():
        return keras.utils.FeatureSpace({"x": "float_normalized"}, output_mode="concat")

    space = make()
    assert not layers.is_adapted(space)
    layers.set_adapted(space, {"_preprocessed_features_names": ["x"], "_crossed_features_names": []})
    assert layers.is_adapted(space)
    assert layers.feature_names(space) == {"_preprocessed_features_names": ["x"], "_crossed_features_names": []}


def test_steps_and_rates_of_an_optimizer(model):
    optimizer = model.optimizer
    assert float(keras.ops.convert_to_numpy(optimizers.learning_rate_of(optimizer))) == 0.5
    assert optimizers.learning_rate_of(object(), None) is None
    assert [v.path for v in optimizers.trained_variables(optimizer)] == [v.path for v in model.trainable_variables]


@pytest.mark.xfail(
    keras.backend.backend() == "torch",
    raises=IndexError,
    reason="Keras 3.15 on torch asks the first weight for its dtype",
)
def test_a_step_without_gradients_counts(model):
    optimizer = model.optimizer
    optimizers.apply_nothing(optimizer)
    assert int(keras.ops.convert_to_numpy(optimizers.step_count(optimizer))) == 1


def test_gradients_that_an_optimizer_knows(model):
    first, *others = model.trainable_variables
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are none of the others
        found = optimizers.known_gradients(model.optimizer, [first.value, *[None] * len(others)], [first, *others])
    assert [v.path for v in found[1]] == [first.path]
    with pytest.raises(ValueError, match="Unknown variable"):
        optimizers.known_gradients(model.optimizer, [first.value], [keras.Variable([0.0])])
    assert optimizers.key_of(model.optimizer, first) == optimizers.key_of(model.optimizer, first)


@pytest.mark.parametrize("is_built", [False, True])
def test_variables_that_are_spared_weight_decay(model, is_built):
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    if is_built:
        optimizer.build(model.trainable_variables)
    spared = {v.name for v in model.trainable_variables if optimizers.is_spared_weight_decay(optimizer, v)}
    assert spared == {"bias"}


def test_what_compile_was_given(model):
    assert compiled.losses_passed(model) == {"loss": "mse", "loss_weights": None}
    assert compiled.metrics_passed(model) == {"metrics": ["mae"], "weighted_metrics": ["mse"]}
    bare = keras.Sequential([keras.layers.Dense(1)])
    bare.compile("sgd")
    assert compiled.compile_loss(bare) is compiled.compile_metrics(bare) is None
    assert compiled.losses_passed(bare) == compiled.metrics_passed(bare) == {}


def test_what_losses_and_metrics_call():
    huber = keras.losses.Huber(delta=3.0)
    assert compiled.arguments_of(huber)["delta"] == 3.0
    assert compiled.arguments_of(object(), {}) == {}
    metric = keras.metrics.MeanAbsoluteError()
    assert compiled.function_of(metric) is keras.losses.mean_absolute_error
    assert isinstance(metric, internals.MeanMetricWrapper)
    assert isinstance(huber, internals.LossFunctionWrapper)

    class Both(keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.inner = metric

    assert compiled.inner_metrics(Both()) == [metric]


@pytest.mark.parametrize("again", [False, True])
def test_a_model_that_is_built_by_shapes(again):
    if keras.backend.backend() == "torch" and not again:
        pytest.skip("models are built by a batch there")
    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile("sgd", "mse", metrics=["mae"])
    compiled.build_symbolically(made, (keras.KerasTensor((4, 2)), keras.KerasTensor((4, 1)), None), again=again)
    assert made.built
    assert compiled.compile_metrics(made).built


def test_a_loss_as_steps_compute_it(model):
    loss = compiled.compute_loss(model, x=X, y=Y, y_pred=keras.ops.convert_to_tensor(Y + 2), sample_weight=None)
    assert float(keras.ops.convert_to_numpy(loss)) == 4.0


def test_which_epochs_are_validated(model):
    assert [compiled.is_validated(model, epoch, 2) for epoch in range(4)] == [False, True, False, True]
    compiled.replace_is_validated(model, lambda epoch, every: epoch == 0)
    history = model.fit(X, Y, epochs=2, validation_data=(X, Y), verbose=0).history
    assert len(history["val_loss"]) == 1
    assert compiled.initial_epoch_set(model) is None


def test_compiled_and_added_losses_that_are_replaced_for_a_while(model):
    def doubled(loss):
        return lambda y_true, y_pred, sample_weight=None: 2 * loss(y_true, y_pred, sample_weight)

    class Adding(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.ones(()))
            return x

    model.add(Adding())
    model.compile("sgd", "mse")
    before = loss_of(model)
    with patches.losses_replaced(doubled):
        model.compile("sgd", "mse")
        assert loss_of(model) == pytest.approx(2 * (before - 1) + 1)
    with patches.additional_losses_by(lambda _, original, loss: 10 * original(_, loss)):
        model.compile("sgd", "mse")
        assert loss_of(model) == pytest.approx(before + 9)
    model.compile("sgd", "mse")
    assert loss_of(model) == pytest.approx(before)


def test_weights_through_a_store_of_ones_own(model):
    class Store(saving.H5IOStore):
        def __init__(self):
            self.held = {}

        def __bool__(self):
            return True

        def make(self, path, metadata=None):
            return self.held.setdefault(path, {})

        def get(self, path):
            return self.held.get(path, {})

        def has_path(self, path):
            return any(known.startswith(path) for known in self.held)

    store, failed = Store(), {}
    saving.save_state(model, store, None, set())
    held = {path: {k: keras.ops.convert_to_numpy(v) + 1 for k, v in of.items()} for path, of in store.held.items()}
    store.held = held
    before = model.get_weights()
    saving.load_state(model, store, None, set(), failed)
    assert failed == {}
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one + 1, other)


def test_names_of_private_modules():
    assert not internals.is_default(keras.layers.Dense.build)
    assert internals.functional_like_constructor(internals.Functional)
    assert internals.pythonify_logs({"loss": np.float32(0.5)}) == {"loss": 0.5}
    tensor = keras.ops.convert_to_tensor(X)
    internals.set_keras_mask(tensor, tensor > 0)
    assert internals.get_keras_mask(tensor) is not None
    spec = internals.compute_output_spec(lambda x: x[:, :1], keras.KerasTensor((4, 2)))
    assert spec.shape == (4, 1)
    with keras.StatelessScope() as scope:
        assert internals.get_stateless_scope() is scope
    layer = keras.layers.Dense(1)
    with internals.ObjectSharingScope():
        configs = [keras.saving.serialize_keras_object(layer) for _ in range(2)]
    with internals.ObjectSharingScope():
        one, other = map(keras.saving.deserialize_keras_object, configs)
    assert one is other
    internals.global_state.set_global_attribute("of a test", 3)
    assert internals.global_state.get_global_attribute("of a test") == 3
    assert callable(internals.masking.get_tensor_attr)
    assert callable(internals.MetricsList.update_state)
    assert callable(internals.loss_module.reduce_weighted_values)
    assert hasattr(internals.serialization_lib, "tf")
