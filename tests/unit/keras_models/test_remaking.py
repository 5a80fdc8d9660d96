"""Objects of Keras are made again from a config or by value, and errors say what went wrong first."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from dask_train.keras_models.remaking import (
    KEY,
    Maker,
    MakingError,
    describe,
    is_of_keras,
    keras_base,
    names_of_keras,
)


class Scaled(keras.layers.Layer):
    """Takes what no config has."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        return x * self.factor


class Plain:
    """Of no class of Keras."""

    def __init__(self):
        raise AssertionError("it is made past this")


class Told(keras.layers.Dense):
    """Makes itself of its config."""


class Error(keras.losses.Loss):
    """Takes what no config has."""

    def __init__(self, factor):
        raise AssertionError("it is made past this")

    def call(self, truth, found):
        return self.factor * (truth - found)


def by_value(base, attributes, variables=(), layer=None):
    return {KEY: {"base": base, "attributes": attributes, "variables": list(variables), "layer": layer}}


def as_layer(**changes):
    told = {"name": "scaled", "dtype": keras.dtype_policies.serialize(keras.dtype_policies.get("mixed_bfloat16"))}
    return told | changes


def weight(name, *, created=True, trainable=True):
    return {
        "arguments": {"name": name, "shape": [2], "dtype": "float32"},
        "created_trainable": created,
        "trainable": trainable,
        "regularizer": None,
        "constraint": keras.saving.serialize_keras_object(keras.constraints.NonNeg()),
    }


def test_a_class_makes_itself_of_a_config():
    made = Maker(Told, {}).from_config({"units": 3, "name": "told"})
    assert (type(made), made.units, made.name) == (Told, 3, "told")


def test_a_layer_by_value_is_made_past_its_own_init():
    attributes = {
        "factor": {"value": "key"},
        "nested": {"dict": [{"tuple": [{"value": "name"}, {"value": "key"}]}]},
        "parts": {"list": [{"variable": 1}, {"tuple": []}]},
        "inner": {"keras": keras.saving.serialize_keras_object(keras.layers.Dense(4, name="inside"))},
    }
    told = by_value(
        as_layer(),
        attributes,
        [weight("a"), weight("b", created=True, trainable=False)],
        {"trainable": True, "built": True},
    )
    made = Maker(Scaled, {"key": 3.0, "name": "times"}).from_config(told)
    assert (type(made), made.name, made.dtype_policy.name) == (Scaled, "scaled", "mixed_bfloat16")
    assert (made.factor, made.nested, made.inner.units, made.built) == (3.0, {"times": 3.0}, 4, True)
    first, second = made.variables
    assert (first.name, first.trainable, second.name, second.trainable) == ("a", True, "b", False)
    assert made.parts[0] is second
    assert made.parts[1] == ()
    assert isinstance(first.constraint, keras.constraints.NonNeg)


@pytest.mark.parametrize("built", [None, False, True])
def test_a_layer_that_was_not_built_or_frozen_stays_so(built):
    told = by_value(as_layer(), {}, layer={"trainable": False, "built": built})
    made = Maker(Scaled, {}).from_config(told)
    assert (made.trainable, made.built) == (False, bool(built))


def test_a_loss_is_made_as_its_base_makes_it():
    told = by_value({"name": "mine", "reduction": "sum"}, {"factor": {"value": "key"}})
    made = Maker(Error, {"key": 2.0}).from_config(told)
    assert (type(made), made.name, made.reduction) == (Error, "mine", "sum")
    assert float(made(np.array([3.0]), np.array([1.0]))) == 4.0


def test_a_metric_has_its_variables():
    class Counted(keras.metrics.Metric):
        def __init__(self, more):
            raise AssertionError

    variable = {"arguments": {"name": "count", "shape": [], "dtype": "float32", "aggregation": "sum"}}
    told = by_value({"name": "counted", "dtype": None}, {"count": {"variable": 0}}, [variable])
    made = Maker(Counted, {}).from_config(told)
    assert [each.name for each in made.variables] == ["count"]
    made.count.assign(5.0)
    made.reset_state()
    assert float(made.count) == 0.0


def test_what_is_of_no_class_of_keras_gets_its_attributes_only():
    made = Maker(Plain, {"key": "value"}).from_config(by_value({}, {"one": {"value": "key"}}))
    assert vars(made) == {"one": "value"}


def test_what_can_not_be_made_is_told_by_its_class():
    with pytest.raises(MakingError, match=rf"^{Scaled.__module__}\.Scaled can't be made: .*unexpected keyword.*'odd'"):
        Maker(Scaled, {}).from_config({"odd": 1})


def nested(*errors):
    """Errors of which each was raised while the one before was handled."""
    try:
        if len(errors) > 1:
            nested(*errors[:-1])
    except Exception as before:
        raise errors[-1] from before
    raise errors[-1]


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([ValueError("bad value")], "ValueError: bad value."),
        ([TypeError("takes no x.")], "takes no x."),
        ([KeyError("x"), TypeError("Keras: all layers")], "KeyError: 'x'."),
        (
            [KeyError("x"), MakingError("m.C can't be made: KeyError: 'x'."), TypeError("Keras")],
            "m.C can't be made: KeyError: 'x'.",
        ),
        ([ZeroDivisionError()], "ZeroDivisionError:."),
    ],
)
def test_an_error_is_told_without_what_is_wrapped_around_it(errors, told):
    with pytest.raises(type(errors[-1])) as caught:
        nested(*errors)
    assert describe(caught.value) == told


def test_ancestors_of_keras():
    assert keras_base(Scaled) is keras.layers.Layer
    assert keras_base(Told) is keras.layers.Dense
    assert keras_base(Plain) is object
    assert (is_of_keras(keras.layers.Dense), is_of_keras(Told)) == (True, False)


def test_attributes_that_code_of_keras_sets_are_known_also_behind_properties_and_decorators():
    def behind(self):
        self.behind_a_decorator = 1

    @functools.wraps(behind)
    def wrapped(self):
        return behind(self)

    def of_property(self):
        self.in_a_property = 1

    def of_class(cls):
        cls.of_the_class = 1

    def outer(self):
        def inner():
            self.in_a_function = 1

        return inner

    members = {"a": wrapped, "b": property(of_property), "c": classmethod(of_class), "d": outer, "CONSTANT": 5}
    names = names_of_keras(type("Known", (keras.layers.Dense,), members))
    assert {"behind_a_decorator", "in_a_property", "of_the_class", "in_a_function"} <= names
    assert {"get_config", "units", "built"} <= names, "of its ancestors, too"
    assert "CONSTANT" not in names
