"""Objects that can't be made from their config: by their attributes, as pickle would.

Keras makes a layer, an optimizer or a loss again by calling its class with its config. A custom class often has
none that works: one that takes anything but plain values, ``class Net(keras.Model): def __init__(self, width)`` in
Keras 3.15; an ``__init__`` without ``name``, ``trainable`` and ``dtype``; or a subclass with settings of its own and no
``get_config``, whose config would be that of its parent. Such an object travels by its contents: own attributes, inner
layers, and the shapes of its own variables. Its ``__init__`` and ``build`` are not called again
(:mod:`dask_train.keras_models.remaking`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

from dask_train.compat.keras.internals import Functional, functional_like_constructor
from dask_train.compat.keras.layers import (
    flatten_layers,
    has_init_arguments,
    is_autocast,
    is_itself_trainable,
    metric_variables,
    own_non_trainable,
    own_trainable,
)
from dask_train.keras_models.remaking import KEY, MakingError, is_of_keras, keras_base, names_of_keras

Keep = Callable[..., str]

# What Keras sets on a model from outside of it, and what is remembered of training.
_SET_FROM_OUTSIDE = {"history", "stop_training", "stop_evaluating", "stop_predicting", "optimizer"}
# What a class sets of Keras' own attributes to tell how it wants to be called.
_OWN_BEHAVIOUR = (
    "_allow_non_tensor_positional_args",
    "_build_shapes_dict",
    "_convert_input_args",
    "_input_spec",
    "_supports_masking",
    "activity_regularizer",
    "autocast",
    "supports_jit",
)


@contextlib.contextmanager
def described_by_value(model: Any, parts: Iterable[Any], keep: Keep, sendable: Callable[[Any], bool]) -> Iterator[None]:
    """Let ``get_config()`` of objects that have no config that works tell their attributes, for a while.

    Parameters
    ----------
    model : keras.Model
        What is taken apart.
    parts
        All objects in it that have a config.
    keep
        Called as ``keep(value, where)`` with each value that no config can hold and where it was found, for people;
        returns the key under which the far side will find it.
    sendable
        Whether a value can be kept.

    Raises
    ------
    MakingError
        A layer without a config shares a variable with another layer: only its ``__init__`` can tie it again.
    """
    objects = [each for each in parts if travels_by_value(each) and not _better_by_config(each, sendable)]
    _check_owners(model, [each for each in objects if isinstance(each, keras.layers.Layer)])
    try:
        for each in objects:
            # In the instance's dict, past Keras' `__setattr__`, it comes before the method of the class.
            each.__dict__["get_config"] = functools.partial(_describe, each, keep)
        yield
    finally:
        for each in objects:
            each.__dict__.pop("get_config", None)


def travels_by_value(value: Any) -> bool:
    """Return whether an object travels by its attributes, since there is no config that its class can be made from."""
    cls = type(value)
    if is_of_keras(cls) or not hasattr(value, "__dict__"):
        return False
    if isinstance(value, Functional) and not functional_like_constructor(cls):
        return False  # its graph is made by its `__init__`
    if not _compiles_as_keras(value):
        # What a `compile` of its own set are attributes, which only its own pair of methods, or we, can keep.
        return cls.compile_from_config is keras.Model.compile_from_config and (_is_plain(cls) or not _tells_itself(cls))
    if not _tells_itself(cls):
        return True
    made_by_keras = isinstance(value, keras.layers.Layer) and _is_plain(cls) and not _has_own(cls, "from_config")
    return made_by_keras and not _takes_what_configs_have(cls)


def _compiles_as_keras(instance: Any) -> bool:
    return not isinstance(instance, keras.Model) or type(instance).compile is keras.Model.compile


def _tells_itself(cls: type) -> bool:
    """Return whether the class that has the ``__init__``, or one derived from it, says what its config is."""
    for each in cls.__mro__:
        if is_of_keras(each) or each is object:
            return False
        if "get_config" in vars(each) or "from_config" in vars(each):
            return True
        if "__init__" in vars(each):
            return False
    return False


def _is_plain(cls: type) -> bool:
    return keras_base(cls) in (keras.Model, keras.layers.Layer)


def _has_own(cls: type, name: str) -> bool:
    return any(name in vars(each) for each in cls.__mro__ if not is_of_keras(each) and each is not object)


def _takes_what_configs_have(cls: type) -> bool:
    parameters = inspect.signature(cls).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or {"name", "trainable", "dtype"} <= parameters.keys()


def _better_by_config(instance: Any, sendable: Callable[[Any], bool]) -> bool:
    """Whether an attribute can't be sent, but what the layer was called with is known, so that it can be made anew."""
    if not isinstance(instance, keras.layers.Layer) or not _takes_what_configs_have(type(instance)):
        return False
    if not has_init_arguments(instance) and not isinstance(instance, (Functional, keras.Sequential)):
        return False
    own = {id(variable) for variable in _own_variables(instance)}
    return not all(sendable(value) for value in _leaves(_own_attributes(instance).values()) if id(value) not in own)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from _leaves(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from _leaves(value)
        elif not _is_keras_object(value):
            yield value


def _check_owners(model: Any, by_value: list[Any]) -> None:
    owners = Counter(
        id(variable)
        for layer in flatten_layers(model)
        for variable in (*own_trainable(layer), *own_non_trainable(layer))
    )
    for layer in by_value:
        for variable in _own_variables(layer):
            if owners[id(variable)] > 1:
                raise MakingError(f"Layer {layer.name!r} shares {variable.path!r} and has no config to tie it by.")


def _own_variables(instance: Any) -> list[Any]:
    """Variables that an object by value brings along: not those that its parent in Keras makes."""
    if isinstance(instance, keras.layers.Layer):
        return [*own_trainable(instance), *own_non_trainable(instance)] if _is_plain(type(instance)) else []
    if isinstance(instance, keras.metrics.Metric):
        attributes = _own_attributes(instance).values()
        return [
            variable for variable in metric_variables(instance) if any(_holds(each, variable) for each in attributes)
        ]
    return []


def _describe(instance: Any, keep: Keep) -> dict[str, Any]:
    own = _own_variables(instance)
    places = {id(variable): place for place, variable in enumerate(own)}
    is_layer = isinstance(instance, keras.layers.Layer)
    name = getattr(instance, "name", type(instance).__name__)
    attributes = {
        attribute: _encode(value, places, functools.partial(keep, where=f"{name}.{attribute}"))
        for attribute, value in _own_attributes(instance).items()
        if is_layer or places or not _holds(value, keras.Variable)
    }
    created_trainable = {id(variable) for variable in own_trainable(instance)} if is_layer else set()
    return {
        KEY: {
            "base": _config_of_base(instance),
            "layer": {
                "trainable": is_itself_trainable(instance),
                "built": instance.built if _is_plain(type(instance)) else None,
            }
            if is_layer
            else None,
            "variables": [_describe_variable(variable, id(variable) in created_trainable) for variable in own],
            "attributes": attributes,
        }
    }


def _config_of_base(instance: Any) -> dict[str, Any]:
    if _is_plain(type(instance)):
        return {"name": instance.name, "dtype": instance.dtype_policy}
    try:
        return dict(keras_base(type(instance)).get_config(instance))
    except (AttributeError, NotImplementedError):  # a base without any, such as that of schedules
        return {}


def _own_attributes(instance: Any) -> dict[str, Any]:
    known = names_of_keras(keras_base(type(instance))) | _SET_FROM_OUTSIDE
    # On the torch backend a layer is a torch module, which keeps its inner modules in a dict of their own.
    attributes = {**vars(instance), **vars(instance).get("_modules", {})}
    own = {name: value for name, value in attributes.items() if not (name in known or name.startswith("_self_"))}
    behaviour = _OWN_BEHAVIOUR if _is_plain(type(instance)) else ()
    return own | {name: attributes[name] for name in behaviour if name in attributes}


def _encode(value: Any, places: dict[int, int], keep: Callable[[object], str]) -> dict[str, Any]:
    if id(value) in places:
        return {"variable": places[id(value)]}
    if _is_keras_object(value):
        return {"keras": value}
    if not _any(value, lambda item: id(item) in places or _is_keras_object(item)):
        return {"value": keep(_untracked(value))}
    if isinstance(value, dict):
        return {"dict": [_encode(item, places, keep) for item in value.items()]}
    items = [_encode(item, places, keep) for item in value]
    if isinstance(value, tuple) and value.__class__ is not tuple:  # its type may be a wrapper of TensorFlow's
        return {"tuple of a class": [{"value": keep(value.__class__)}, *items]}
    return {"tuple" if isinstance(value, tuple) else "list": items}


def _describe_variable(variable: Any, created_trainable: bool) -> dict[str, Any]:
    return {
        "created_trainable": created_trainable,
        "trainable": variable.trainable,
        "arguments": {
            "shape": list(variable.shape),
            "dtype": variable.dtype,
            "name": variable.name,
            "autocast": is_autocast(variable),
            "aggregation": variable.aggregation,
            "overwrite_with_gradient": variable.overwrite_with_gradient,
        },
        "regularizer": variable.regularizer,
        "constraint": variable.constraint,
    }


def _is_keras_object(value: Any) -> bool:
    return hasattr(type(value), "get_config") and hasattr(type(value), "from_config")


def _holds(value: Any, wanted: Any) -> bool:
    """Return whether a value is, or contains, that object, or one of that class."""
    return _any(value, lambda item: item is wanted or (isinstance(wanted, type) and isinstance(item, wanted)))


def _any(value: Any, wanted: Callable[[Any], bool]) -> bool:
    if isinstance(value, dict):
        return any(_any(item, wanted) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_any(item, wanted) for item in value)
    return wanted(value)


def _untracked(value: Any) -> Any:
    """Return lists and dicts without Keras' tracking, which would come along with the layer that tracks."""
    if isinstance(value, dict):
        return {key: _untracked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_untracked(item) for item in value]
    if isinstance(value, set):
        return set(value)
    return tuple(_untracked(item) for item in value) if type(value) is tuple else value
