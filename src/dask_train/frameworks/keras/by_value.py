"""Layers and models that can't be made from their config: by their attributes, as pickle would.

Keras makes an object again by calling its class with its config. A class of one's own often has none that works: one
that takes anything but plain values, ``class Net(keras.Model): def __init__(self, width)`` in Keras 3.15, or an
``__init__`` without ``name``, ``trainable`` and ``dtype``. Such an object travels by what it holds: own attributes,
inner layers, and the shapes of its own variables. Its ``__init__`` and ``build`` are not called again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras

Keep = Callable[..., str]

KEY = "dask_train_by_value"

# What Keras sets on a model in `fit`, `evaluate` and `predict`, besides what a new model has.
_SET_WHILE_TRAINING = {"history", "stop_training", "stop_evaluating", "stop_predicting", "optimizer"}
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
def described_by_value(model: Any, keep: Keep) -> Iterator[None]:
    """Let ``get_config()`` of layers that have no config that works tell their attributes, for a while.

    Parameters
    ----------
    model : keras.Model
        It and all layers in it are looked at.
    keep
        Called as ``keep(value, where)`` with each value that no config can hold and where it was found, for people;
        returns the key under which the far side will find it.

    Raises
    ------
    MakingError
        A layer without a config shares a variable with another layer: only its ``__init__`` can tie it again.
    """
    layers = [layer for layer in model._flatten_layers() if travels_by_value(layer)]
    _check_owners(model, layers)
    try:
        for layer in layers:
            # In the instance's dict, past Keras' `__setattr__`, it comes before the method of the class.
            layer.__dict__["get_config"] = functools.partial(_describe, layer, keep)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("get_config", None)


class MakingError(TypeError):
    """A layer can't be made. Keras wraps it in long errors of its own; :func:`describe` finds it again."""


def describe(error: BaseException) -> str:
    """What went wrong first, without what Keras wraps around it: configs of all layers outside."""
    first = error
    while not isinstance(first, MakingError) and (first.__cause__ or first.__context__):
        first = first.__cause__ or first.__context__ or first
    text = f"{'' if isinstance(first, TypeError) else type(first).__name__ + ': '}{first}".strip()
    return text if text.endswith(".") else f"{text}."


class Maker:
    """Makes layers of one class where Keras does: from a config, or by value.

    Parameters
    ----------
    cls
        A subclass of ``keras.layers.Layer``.
    values
        What ``keep`` was given, by key.
    """

    def __init__(self, cls: Any, values: dict[str, Any]) -> None:
        self._cls, self._values = cls, values

    def from_config(self, config: dict[str, Any]) -> Any:
        """Make an object by its class's own ``from_config``, unless it was described by value.

        Raises
        ------
        MakingError
            It can't be made; the message names the class.
        """
        try:
            return self._rebuild(config[KEY]) if KEY in config else self._cls.from_config(config)
        except Exception as error:
            name = f"{self._cls.__module__}.{self._cls.__qualname__}"
            raise MakingError(f"{name} can't be made: {describe(error)}") from error

    def _rebuild(self, told: dict[str, Any]) -> Any:
        layer = self._cls.__new__(self._cls)
        _keras_base(self._cls).__init__(layer, name=told["name"], dtype=_from_keras(told["dtype"]))
        variables = [_add_variable(layer, variable) for variable in told["variables"]]
        for name, entry in told["attributes"].items():
            setattr(layer, name, self._decode(entry, variables))
        # Past the setters, which would reach into inner layers: those bring their own.
        layer.__dict__["_trainable"] = told["trainable"]
        layer.built = told["built"]
        for variable, entry in zip(variables, told["variables"], strict=True):
            variable.trainable = entry["trainable"]
        return layer

    def _decode(self, entry: Any, variables: list[Any]) -> Any:
        ((kind, content),) = entry.items()
        if kind == "value":
            return self._values[content]
        if kind == "variable":
            return variables[content]
        if kind == "keras":
            return _from_keras(content)
        items = [self._decode(item, variables) for item in content]
        return {"list": list, "tuple": tuple, "dict": dict}[kind](items)


def travels_by_value(layer: Any) -> bool:
    """Whether a layer or model travels by its attributes, since there is no config that its class can be made from."""
    cls = type(layer)
    if _keras_base(cls) not in (keras.Model, keras.layers.Layer) or cls in (keras.Model, keras.layers.Layer):
        return False
    if issubclass(cls, keras.Model) and cls.compile is not keras.Model.compile:
        # What a `compile` of its own set are attributes, which only its own pair of methods, or we, can keep.
        return cls.compile_from_config is keras.Model.compile_from_config
    if cls.from_config.__func__ not in (keras.Model.from_config.__func__, keras.layers.Layer.from_config.__func__):
        return False
    if cls.get_config is keras.layers.Layer.get_config and layer._auto_config is None:
        return True
    parameters = inspect.signature(cls).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return not (takes_any or {"name", "trainable", "dtype"} <= parameters.keys())


def _check_owners(model: Any, by_value: list[Any]) -> None:
    owners = Counter(id(variable) for layer in model._flatten_layers() for variable in _own_variables(layer))
    for layer in by_value:
        for variable in _own_variables(layer):
            if owners[id(variable)] > 1:
                raise MakingError(f"Layer {layer.name!r} shares {variable.path!r} and has no config to tie it by.")


def _own_variables(layer: Any) -> list[Any]:
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def _describe(layer: Any, keep: Keep) -> dict[str, Any]:
    own = _own_variables(layer)
    places = {id(variable): place for place, variable in enumerate(own)}
    described = [
        _describe_variable(variable, place < len(layer._trainable_variables)) for place, variable in enumerate(own)
    ]
    attributes = {}
    # On the torch backend a layer is a torch module, which keeps its inner modules in a dict of their own.
    for name, value in {**vars(layer), **vars(layer).get("_modules", {})}.items():
        if name in _OWN_BEHAVIOUR or not (name in _of_keras() or name.startswith("_self_")):
            attributes[name] = _encode(value, places, functools.partial(keep, where=f"{layer.name}.{name}"))
    return {
        KEY: {
            "name": layer.name,
            "dtype": layer.dtype_policy,
            "trainable": layer._trainable,
            "built": layer.built,
            "variables": described,
            "attributes": attributes,
        }
    }


def _encode(value: Any, places: dict[int, int], keep: Callable[[object], str]) -> dict[str, Any]:
    if id(value) in places:
        return {"variable": places[id(value)]}
    if _is_keras_object(value):
        return {"keras": value}
    if not _holds(value, lambda item: id(item) in places or _is_keras_object(item)):
        return {"value": keep(_untracked(value))}
    if isinstance(value, dict):
        return {"dict": [_encode(item, places, keep) for item in value.items()]}
    kind = "tuple" if isinstance(value, tuple) else "list"
    return {kind: [_encode(item, places, keep) for item in value]}


def _describe_variable(variable: Any, created_trainable: bool) -> dict[str, Any]:
    return {
        "created_trainable": created_trainable,
        "trainable": variable.trainable,
        "arguments": {
            "shape": list(variable.shape),
            "dtype": variable.dtype,
            "name": variable.name,
            "autocast": variable._autocast,
            "aggregation": variable.aggregation,
            "overwrite_with_gradient": variable.overwrite_with_gradient,
        },
        "regularizer": variable.regularizer,
        "constraint": variable.constraint,
    }


def _add_variable(layer: Any, told: dict[str, Any]) -> Any:
    return layer.add_weight(
        **told["arguments"],
        initializer="zeros",
        trainable=told["created_trainable"],
        regularizer=_from_keras(told["regularizer"]),
        constraint=_from_keras(told["constraint"]),
    )


def _from_keras(config: Any) -> Any:
    return keras.saving.deserialize_keras_object(config)


def _is_keras_object(value: Any) -> bool:
    return hasattr(type(value), "get_config") and hasattr(type(value), "from_config")


def _holds(value: Any, wanted: Callable[[Any], bool]) -> bool:
    if isinstance(value, dict):
        return any(_holds(item, wanted) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_holds(item, wanted) for item in value)
    return wanted(value)


def _untracked(value: Any) -> Any:
    """Lists and dicts without Keras' tracking, which would come along with the layer that tracks."""
    if isinstance(value, dict):
        return {key: _untracked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_untracked(item) for item in value]
    if isinstance(value, set):
        return set(value)
    return tuple(_untracked(item) for item in value) if type(value) is tuple else value


def _keras_base(cls: type) -> Any:
    """The nearest class in the line of ancestors that Keras ships."""
    return next(base for base in cls.__mro__ if base.__module__.partition(".")[0] == "keras")


@functools.cache
def _of_keras() -> frozenset[str]:
    """Names that Keras itself sets on a model."""
    model = keras.Model()
    model.compile()
    return frozenset({*vars(model), *_SET_WHILE_TRAINING, "get_config"})
