"""Functions and classes of a user's own are found in a model, and travel beside its config."""

from __future__ import annotations

import json
import sys
import threading
import warnings

import cloudpickle
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from dask_train.keras_models.custom_objects import STANDS_IN_FOR, CustomObjects, unpack
from dask_train.keras_models.remaking import MakingError


class Twice(keras.layers.Layer):
    """A layer of this module."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.rule = keras.regularizers.L2(0.1)

    def build(self, shape):
        self.built = True

    def call(self, x):
        return 2 * x


@keras.saving.register_keras_serializable("mine")
def registered(x):
    return x + 1


def model_of(*layers):
    return keras.Sequential([keras.Input((2,)), *layers])


def activation(function):
    return keras.layers.Activation(function)


def taken(model):
    """What was found, and the model's config with keys in it."""
    custom = CustomObjects(model)
    with custom.functions_named():
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    custom.take(config)
    return custom, config


def again(custom, config):
    """The model as it is made elsewhere."""
    return keras.saving.deserialize_keras_object(config, unpack(custom.pack()), safe_mode=False)


def test_a_model_of_keras_alone_has_nothing_to_take_along():
    custom, _ = taken(model_of(keras.layers.Dense(2, activation="relu"), activation(keras.activations.sigmoid)))
    assert custom.objects == {}
    assert custom.pack() == b""
    assert unpack(b"") == {}


def test_classes_and_functions_travel_under_keys_that_nothing_of_keras_has():
    custom, config = taken(model_of(Twice(name="twice"), activation(registered), activation(lambda x: x - 3)))
    assert all(key.startswith("dask_train>") for key in custom.objects)
    assert {Twice, registered} <= set(custom.objects.values())
    assert f"dask_train>{Twice.__module__}.Twice" in custom.objects
    other = again(custom, config)
    assert type(other.layers[0]) is Twice
    assert float(other(np.ones((1, 2)))[0, 0]) == 2 * 1 + 1 - 3


def test_functions_of_one_name_are_told_apart_and_keep_their_names():
    def relu(x):
        return -x

    first, second = (lambda x: x + 1), (lambda x: x * 5)
    custom, config = taken(model_of(*map(activation, (relu, first, second, keras.activations.relu))))
    assert [function.__name__ for function in (relu, first, second)] == ["relu", "<lambda>", "<lambda>"]
    assert {relu, first, second} == set(custom.objects.values())
    assert float(again(custom, config)(np.full((1, 2), 3.0))[0, 0]) == max((-3 + 1) * 5, 0)


def test_names_come_back_also_where_something_fails():
    def mine(x):
        return x

    named = CustomObjects(model_of(activation(mine))).functions_named()
    named.__enter__()
    assert mine.__name__ == "mine_0_by_dask_train"
    assert not named.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert mine.__name__ == "mine"


def test_objects_with_a_config_are_found_wherever_they_are_held():
    layer, rule = Twice(), keras.regularizers.L1(0.5)
    layer.held = {"in": [(rule,)]}
    instances = CustomObjects(model_of(layer)).instances
    for wanted in (layer, layer.rule, rule):
        assert sum(wanted is each for each in instances) == 1


def make_class(name, times):
    class Made(keras.layers.Layer):
        def call(self, x):
            return times * x

    Made.__name__ = Made.__qualname__ = name
    return Made


def test_two_classes_of_one_name_are_refused():
    model = model_of(make_class("Same", 2)(), make_class("Same", 3)())
    with pytest.raises(TypeError, match=r"The model uses 2 different objects named 'Same'.*Rename one of them"):
        taken(model)


def test_a_function_that_is_nowhere_in_the_model_is_refused():
    config = {"class_name": "function", "config": "lost", "registered_name": "lost", "module": "builtins"}
    with pytest.raises(TypeError, match=r"The function 'lost' was not found in the model\. Keep it"):
        CustomObjects(model_of()).take([{"deep": [config]}])


@pytest.mark.parametrize(("name", "is_there"), [("Twice", True), ("Gone", False)])
def test_a_class_of_which_there_is_a_config_only_is_looked_up_in_its_module(name, is_there):
    config = {"class_name": name, "config": {}, "registered_name": None, "module": Twice.__module__}
    custom = CustomObjects(model_of())
    if not is_there:
        with pytest.raises(TypeError, match="The class 'Gone' was not found in the model"):
            custom.take(config)
        return
    custom.take(config)
    assert custom.objects == {config["registered_name"]: getattr(sys.modules[Twice.__module__], name)}


def test_values_are_kept_under_keys_of_their_own():
    custom = CustomObjects(model_of())
    keys = [custom.keep(value, "attribute 'x' of layer 'y'") for value in (1, 1)]
    assert len(set(keys)) == 2
    assert unpack(custom.pack()) == dict.fromkeys(keys, 1)


def test_what_can_not_be_pickled_is_told_by_where_it_was_found():
    custom = CustomObjects(model_of())
    custom.keep(3, "something else")
    custom.keep(threading.Lock(), "attribute 'lock' of layer 'y'")
    with pytest.raises(
        MakingError, match=r"^attribute 'lock' of layer 'y', which is <unlocked .*>, can't be pickled: "
    ):
        custom.pack()


def test_parts_of_the_model_are_not_copied_into_functions():
    layer = keras.layers.Dense(2, name="inside")
    model = model_of(layer)
    custom = CustomObjects(model)
    assert custom.sendable([1, "a", registered])
    assert not custom.sendable(lambda: layer)
    assert not custom.sendable(lambda: model.variables[0])
    custom.keep(lambda x: 2 * layer(x), "the function 'f'")
    with pytest.raises(MakingError, match="uses the layer 'inside' of the model itself, and would get a copy of it"):
        custom.pack()


def test_a_layer_that_is_not_the_models_is_refused_and_a_model_is_not():
    custom = CustomObjects(model_of())
    other = keras.layers.Dense(2, name="other")
    custom.keep(lambda x: 2 * other(x), "the function 'f'")
    with pytest.raises(
        MakingError, match=r"uses the layer 'other', which is not the model's. Put it into a keras.Model"
    ):
        custom.pack()
    assert CustomObjects(model_of()).sendable(model_of(keras.layers.Dense(2)))


def test_a_function_that_stands_in_for_another_travels_as_that():
    def stand_in():
        return "stands in"

    def original():
        return "the original"

    setattr(stand_in, STANDS_IN_FOR, original)
    custom = CustomObjects(model_of())
    key = custom.keep([stand_in], "a place")
    assert cloudpickle.loads(custom.pack())[key][0]() == "the original"
