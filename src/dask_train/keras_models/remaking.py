"""Keras objects made again where Keras does it: from a config, or, as :mod:`.by_value` has described them, by value."""

from __future__ import annotations

import dis
import functools
import inspect
from types import CodeType
from typing import Any

import keras

# Under this key a config holds an object's description by value.
KEY = "dask_train_by_value"


class MakingError(TypeError):
    """An object can't be made. Keras wraps it in long errors of its own; :func:`describe` finds it again."""


def describe(error: BaseException) -> str:
    """Return what went wrong first, without what Keras wraps around it: configs of all layers outside."""
    first = error
    while not isinstance(first, MakingError) and (first.__cause__ or first.__context__):
        first = first.__cause__ or first.__context__ or first
    text = f"{'' if isinstance(first, TypeError) else type(first).__name__ + ': '}{first}".strip()
    return text if text.endswith(".") else f"{text}."


class Maker:
    """Makes objects of one class where Keras does: from a config, or by value.

    Parameters
    ----------
    cls
        Layer, optimizer, loss or any other class with a config.
    values
        What configs can't hold, by the keys that they have in its place.
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

    def _rebuild(self, description: dict[str, Any]) -> Any:
        instance = self._as_its_base(description["base"])
        variables = [_add_variable(instance, variable) for variable in description["variables"]]
        for name, entry in description["attributes"].items():
            setattr(instance, name, self._decode(entry, variables))
        if description["layer"] is not None:
            # Past the setters, which would reach into inner layers: those bring their own.
            instance.__dict__["_trainable"] = description["layer"]["trainable"]
            if description["layer"]["built"] is not None:
                instance.built = description["layer"]["built"]
            for variable, entry in zip(variables, description["variables"], strict=True):
                variable.trainable = entry["trainable"]
        return instance

    def _as_its_base(self, config: dict[str, Any]) -> Any:
        """Return an object of the class as its nearest ancestor in Keras initialises it, past its own ``__init__``."""
        base = keras_base(self._cls)
        if base is object:
            return self._cls.__new__(self._cls)
        names = {"__init__": base.__init__, "__module__": self._cls.__module__, "__qualname__": self._cls.__qualname__}
        plain: Any = type(self._cls.__name__, (self._cls,), names)
        if base in (keras.Model, keras.layers.Layer):
            instance = plain(name=config["name"], dtype=_from_keras(config["dtype"]))
        else:
            instance = base.from_config.__func__(plain, config)
        instance.__class__ = self._cls
        return instance

    def _decode(self, entry: Any, variables: list[Any]) -> Any:
        ((kind, content),) = entry.items()
        if kind == "value":
            return self._values[content]
        if kind == "variable":
            return variables[content]
        if kind == "keras":
            return _from_keras(content)
        items = [self._decode(item, variables) for item in content]
        if kind == "tuple of a class":
            return tuple.__new__(items[0], items[1:])
        return {"list": list, "tuple": tuple, "dict": dict}[kind](items)


def keras_base(cls: type) -> Any:
    """Return the nearest class in the line of ancestors that Keras ships; ``object`` if there is none."""
    return next((base for base in cls.__mro__ if is_of_keras(base)), object)


def is_of_keras(cls: type) -> bool:
    """Return whether Keras ships that class."""
    return cls.__module__.partition(".")[0] == "keras"


def _add_variable(owner: Any, description: dict[str, Any]) -> Any:
    if isinstance(owner, keras.metrics.Metric):
        return owner.add_variable(
            description["arguments"]["shape"],
            "zeros",
            dtype=description["arguments"]["dtype"],
            aggregation=description["arguments"]["aggregation"],
            name=description["arguments"]["name"],
        )
    return owner.add_weight(
        **description["arguments"],
        initializer="zeros",
        trainable=description["created_trainable"],
        regularizer=_from_keras(description["regularizer"]),
        constraint=_from_keras(description["constraint"]),
    )


def _from_keras(config: Any) -> Any:
    return keras.saving.deserialize_keras_object(config)


@functools.cache
def names_of_keras(base: type) -> frozenset[str]:
    """Attributes that the code of a class of Keras, and of its ancestors, sets."""
    names = {"get_config"}
    for cls in base.__mro__:
        for member in vars(cls).values():
            names |= _names_set_in(getattr(_function(member), "__code__", None))
    return frozenset(names)


def _function(member: Any) -> Any:
    """Return what is behind a property, a method of the class or a decorator."""
    member = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
    return inspect.unwrap(member) if callable(member) else member


def _names_set_in(code: CodeType | None) -> set[str]:
    if code is None:
        return set()
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
    return names.union(*(_names_set_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
