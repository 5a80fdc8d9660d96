"""Training resumes from a checkpoint only as it was begun."""

from __future__ import annotations

import keras
import numpy as np
import pandas as pd
import pytest
from keras import layers

from dask_train.checkpoint.stored import store, stored
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.roles.configuration import check_same, configuration_of, rates_of, set_rates
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.serialization import load_parts, model_to_parts, parts_to_model

SCHEMA = Columns(
    columns=(Column(dtype="<f4", row_shape=(6,)), Column(dtype="<f4", row_shape=())), names=None, is_tuple=True
)


def net(act="tanh", units=8, optimizer="sgd", loss="mse", name=None, **compiled):
    inputs = keras.Input((6,))
    hidden = layers.Dense(units, act, name=name, kernel_initializer=keras.initializers.GlorotUniform(seed=units))(
        inputs
    )
    outputs = layers.Dense(1, activation=lambda x: x)(layers.Dropout(0.1)(hidden))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer, loss, **compiled)
    return model


def sequential(rate=0.1, built=False):
    model = keras.Sequential([layers.Dense(4), layers.Dropout(rate, seed=3), layers.Dense(1)])
    model.compile("adam", "mse", metrics=[keras.metrics.AUC()])
    if built:
        model(keras.ops.zeros((1, 6)))
    return model


class Own(keras.Model):
    def __init__(self, width=4, kind="tanh", rate=0.1):
        super().__init__()
        self.kind = kind
        self.inner = layers.Dense(width)
        self.head = layers.Dense(1)
        self.other_optimizer = keras.optimizers.Adam(rate)

    def call(self, x):
        return self.head(keras.activations.get(self.kind)(self.inner(x)))


def own(**arguments):
    model = Own(**arguments)
    model(keras.ops.zeros((1, 6)))
    model.compile("sgd", "mse")
    return model


def begun(model, schema=SCHEMA, **more):
    header, arrays = model_to_parts(model)
    task = FitTask(header=header, arrays=arrays, **{"columns": Columns(features=0, labels=1), **more})
    return configuration_of(task, schema, parts_to_model(header, arrays))


def differ(then, now, *, new_rate=False, rates_then=None):
    check_same(then, now, rates_then=rates_then or then["learning_rate"], new_rate=new_rate)


@pytest.mark.parametrize("make", [net, sequential, own])
def test_the_same_program_goes_on_though_keras_counts_names(make, tmp_path):
    then = begun(make())
    store(tmp_path, then)
    differ(stored(tmp_path), begun(make()))


class Configured(layers.Layer):
    """Tells a dict of its own by the name of what Keras has in each config."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def call(self, x):
        return x * self.config["scale"]

    def get_config(self):
        return {**super().get_config(), "config": dict(self.config)}


def test_a_layer_may_have_a_dict_of_its_own_that_is_called_config():
    def made(scale):
        model = keras.Sequential([keras.Input((6,)), Configured({"scale": scale, "name": "own"}), layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    differ(begun(made(2.0)), begun(made(2.0)))
    with pytest.raises(CheckpointError, match=r"scale was 2\.0, and is 3\.0"):
        differ(begun(made(2.0)), begun(made(3.0)))


def test_a_model_goes_on_that_was_built_and_trained_since():
    model = sequential()
    then = begun(model)
    model.fit(np.zeros((4, 6)), np.zeros(4), verbose=0)
    differ(then, begun(model))


def test_other_settings_of_keras_are_named():
    then = begun(net())
    keras.config.set_epsilon(0.5)
    try:
        with pytest.raises(CheckpointError, match=r"settings\.epsilon was 1e-07, and is 0\.5"):
            differ(then, begun(net()))
    finally:
        keras.config.set_epsilon(1e-7)
    del then["settings"]  # of an earlier version
    differ(then, begun(net()))


def test_other_categories_of_the_frame_are_named():
    def schema_of(*values):
        return FrameSchema.of(pd.DataFrame({"kind": pd.Categorical(["u"], categories=values)})).to_json()

    then = begun(net(), frame=schema_of("u", "v"))
    differ(then, begun(net(), frame=schema_of("u", "v")))
    with pytest.raises(CheckpointError, match=r"frame\.columns\[0\].* was 'u', and is 'v'"):
        differ(then, begun(net(), frame=schema_of("v", "u")))
    with pytest.raises(CheckpointError, match=r"frame was .* and is None"):
        differ(then, begun(net()))


def test_what_does_not_matter():
    differ(begun(net(name="a")), begun(net(name="b", jit_compile=False, run_eagerly=True, steps_per_execution=3)))


schedule = keras.optimizers.schedules.ExponentialDecay
OTHER = [
    (net, {"act": "relu"}, {}, r"model.layers\[0\].activation was 'tanh', and is 'relu'"),
    (net, {"act": keras.ops.sin}, {}, r"model.layers\[0\].activation was 'tanh', and is sin"),
    (net, {"units": 9}, {}, r"model.layers\[0\].units was 8, and is 9"),
    (net, {"optimizer": "adam"}, {}, r"compiled\[0\].optimizer was SGD, and is Adam"),
    (net, {"optimizer": keras.optimizers.SGD(momentum=0.5)}, {}, r"optimizer.momentum was 0.0, and is 0.5"),
    (net, {"loss": "mae"}, {}, "loss was 'mse', and is 'mae'"),
    (net, {"metrics": ["mae"]}, {}, r"metrics was None, and is \['mae'\]"),
    (net, {}, {"class_weight": {1: 2.0}}, r"class_weight was None, and is \{1: 2.0\}"),
    (net, {}, {"columns": Columns(features=0, labels=1, weights=1)}, "data.layout.sample_weight was None, and is 1"),
    (net, {}, {"schema": Columns(columns=SCHEMA.columns[:1], names=None, is_tuple=True)}, "data.columns was"),
    (sequential, {"rate": 0.2}, {}, r"model.layers\[1\].rate was 0.1, and is 0.2"),
    (own, {"kind": "relu"}, {}, "kind.* was 'tanh', and is 'relu'"),
    (own, {"width": 5}, {}, "units was 4, and is 5"),
]


@pytest.mark.parametrize(("make", "model", "settings", "match"), OTHER)
def test_what_differs_is_named(make, model, settings, match, tmp_path):
    store(tmp_path, begun(make()))
    with pytest.raises(CheckpointError, match=f"The checkpoint was begun with something else: .*{match}"):
        differ(stored(tmp_path), begun(make(**model), **settings), new_rate=True)


def test_an_optimizer_in_another_attribute_is_another():
    class Other(Own):
        def __init__(self):
            super().__init__()
            self.second_optimizer = self.other_optimizer
            self.other_optimizer = None

        def get_config(self):
            return {}

    model = Other()
    model(keras.ops.zeros((1, 6)))
    model.compile("sgd", "mse")
    with pytest.raises(CheckpointError, match=r"optimizers.* was '?other_optimizer'?, and is '?second_optimizer"):
        differ({**begun(own()), "model": 0}, {**begun(model), "model": 0})


def test_an_optimizer_does_not_take_the_state_of_another():
    some, other = net(optimizer=keras.optimizers.SGD(momentum=0.9)), net(optimizer="lion")
    for model in (some, other):
        model.optimizer.build(model.trainable_variables)
    assert len(some.optimizer.variables) == len(other.optimizer.variables)
    with pytest.raises(ValueError, match=r"Optimizer 'lion.*' is Lion, and was SGD"):
        load_parts(other, *model_to_parts(some))


@pytest.mark.parametrize("make", [net, own])
def test_a_new_learning_rate_has_to_be_asked_for(make):
    other = net(optimizer=keras.optimizers.SGD(0.5)) if make is net else own(rate=0.5)
    then, now = begun(make()), begun(other)
    with pytest.raises(CheckpointError, match=r"the learning rate was .*0.5.* pass resume='new_learning_rate'"):
        differ(then, now)
    differ(then, now, new_rate=True)
    differ(then, now, rates_then=now["learning_rate"])  # a callback had set it, and the model took it over
    model = make()
    set_rates(model, now["learning_rate"])
    assert rates_of(model) == now["learning_rate"]


def test_a_schedule_is_no_learning_rate_to_set():
    then, now = begun(net()), begun(net(optimizer=keras.optimizers.SGD(schedule(0.1, 10, 0.9))))
    for one, other in ((then, now), (now, then)):
        with pytest.raises(CheckpointError, match=r"optimizer.learning_rate was .*, and is "):
            differ(one, other, new_rate=True)
    later = begun(net(optimizer=keras.optimizers.SGD(schedule(0.1, 20, 0.9))))
    with pytest.raises(CheckpointError, match=r"learning_rate.decay_steps was 10, and is 20"):
        differ(now, later, new_rate=True)


def test_another_version_of_keras_may_write_down_more():
    then = begun(net())
    del then["model"]["config"]["layers"][0]["config"]["use_bias"]
    then["compiled"][0]["of_old"] = 1
    differ({**then, "keras": "3.0.0"}, begun(net()))
    with pytest.raises(CheckpointError, match="use_bias was None, and is True"):
        differ(then, begun(net()))
