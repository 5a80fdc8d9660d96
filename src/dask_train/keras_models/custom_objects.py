"""The functions and classes that a Keras model uses and Keras does not ship, by value.

A Keras config names them only, and the far side knows no name that was defined in a notebook. So they are found in the
model, travel next to the config, and the config's names become keys to them. Owns nothing of the model's numbers.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import keras

from dask_train.compat.keras.layers import flatten_layers
from dask_train.keras_models.remaking import Maker, MakingError

# Before every key, so that none is the name of something that is registered with Keras, which would come first.
_MARK = "dask_train>"
# Where Keras looks for functions of its own that a config names.
_ROOMS = (keras.activations, keras.constraints, keras.initializers, keras.losses, keras.metrics, keras.regularizers)


class CustomObjects:
    """What is custom in one model, found by walking the objects that it holds.

    Parameters
    ----------
    model : keras.Model
        Only looked at.

    Attributes
    ----------
    objects : dict
        What must travel with the configs that were given to :meth:`take`, by the keys that are in them now.
    instances : list
        Every object in it that has a config.
    """

    def __init__(self, model: Any) -> None:
        self.objects: dict[str, Any] = {}
        self._classes: defaultdict[tuple[str, str], list[type]] = defaultdict(list)
        self._functions: dict[str, FunctionType] = {}
        self._unregistered: list[FunctionType] = []
        self.instances: list[Any] = []
        self._model = model
        for value in _walk(model):
            if not isinstance(value, FunctionType):
                self.instances.append(value)
                _append_new(self._classes[_class_key(type(value))], type(value))
            elif _is_keras(value.__module__) or keras.saving.get_registered_name(value) != value.__name__:
                self._functions[keras.saving.get_registered_name(value)] = value
            else:
                self._unregistered.append(value)

    @property
    def code(self) -> list[Any]:
        """All classes and functions that the model consists of, those of Keras among them."""
        classes = [cls for namesakes in self._classes.values() for cls in namesakes]
        return [*classes, *self._functions.values(), *self._unregistered]

    @property
    def is_plain(self) -> bool:
        """Return whether the model has Keras' own classes and functions alone, which each process knows by name."""
        return all(_is_keras(each.__module__) for each in self.code)

    @contextlib.contextmanager
    def functions_named(self) -> Iterator[None]:
        """Give each custom function a name that no other has, for a while, so that Keras writes it into configs.

        Keras writes down a function's name, be it the name of two functions, or of one of its own; and a lambda as
        marshalled byte code, which loses the globals that it uses, with a warning.
        """
        names = [function.__name__ for function in self._unregistered]
        for index, function in enumerate(self._unregistered):
            function.__name__ = f"{function.__name__.strip('<>')}_{index}_by_dask_train"
            self._functions[function.__name__] = function
        try:
            yield
        finally:
            for function, name in zip(self._unregistered, names, strict=True):
                function.__name__ = name

    def keep(self, value: object, where: str) -> str:
        """Let a value travel that no config can hold; return its key, which tells people where it was found."""
        key = f"{_MARK}{where}#{len(self.objects)}"
        self.objects[key] = value
        return key

    def sendable(self, value: object) -> bool:
        """Return whether a value could be kept, and would be itself on the far side."""
        try:
            _pickled(value, self._model)
        except Exception:
            return False
        return True

    def pack(self) -> bytes:
        """Pickle the objects: by reference where they can be imported, else by value.

        Raises
        ------
        MakingError
            One of them can't be pickled; the message names it.
        """
        if not self.objects:
            return b""
        try:
            return _pickled(self.objects, self._model)
        except Exception:
            for key, value in self.objects.items():
                try:
                    _pickled(value, self._model)
                except Exception as error:
                    where = key.removeprefix(_MARK).partition("#")[0]
                    raise MakingError(f"{where}, which is {value!r}, can't be pickled: {error}.") from error
            raise

    def take(self, config: Any) -> None:
        """Turn the custom names in a config into keys, and let the objects behind them travel.

        Parameters
        ----------
        config
            Lists and dicts as JSON knows them; changed in place.

        Raises
        ------
        TypeError
            A name stands for nothing that could be found, or for more than one thing.
        """
        if isinstance(config, list):
            for entry in config:
                self.take(entry)
        if not isinstance(config, dict):
            return
        for entry in config.values():
            self.take(entry)
        if {"class_name", "config", "registered_name"} <= config.keys():
            if config["class_name"] == "function":
                self._take_function(config)
            elif not _is_keras(config.get("module")):
                self._take_class(config)

    def _take_function(self, config: dict[str, Any]) -> None:
        name = config["config"]
        if any(hasattr(room, name) for room in _ROOMS):
            return
        config["config"] = config["registered_name"] = key = f"{_MARK}{name}"
        self.objects[key] = _only("function", name, [self._functions[name]] if name in self._functions else [])

    def _take_class(self, config: dict[str, Any]) -> None:
        module, name = config.get("module") or "__main__", config["registered_name"] or config["class_name"]
        classes: list[Any] = list(self._classes.get((module, name), []))
        config["registered_name"] = key = f"{_MARK}{module}.{name}"
        self.objects[key] = _only("class", name, classes or _look_up(module, config["class_name"]))


# The attribute of a function that holds the one in whose place it was put for a while.
STANDS_IN_FOR = "_dask_train_stands_in_for"


class _ObjectPickler(cloudpickle.Pickler):
    """Pickles by reference what can be imported, else by value; refuses parts of the model, which it would copy."""

    def __init__(self, file: Any, model: Any) -> None:
        super().__init__(file, protocol=cloudpickle.DEFAULT_PROTOCOL)
        self._parts = {id(part): part for part in (*flatten_layers(model), *model.variables)}

    def reducer_override(self, obj: Any) -> Any:
        """As cloudpickle does; refuse parts of the model, and take functions for what they stand in for."""
        obj = getattr(obj, STANDS_IN_FOR, obj) if isinstance(obj, FunctionType) else obj
        if id(obj) in self._parts:
            kind = "layer" if isinstance(obj, keras.layers.Layer) else "variable"
            raise MakingError(
                f"it uses the {kind} {obj.name!r} of the model itself, and would get a copy of it, which training does "
                "not change. Make it a method of the layer, or hand it what it needs as an argument"
            )
        if isinstance(obj, keras.layers.Layer) and not isinstance(obj, keras.Model):
            raise MakingError(f"it uses the layer {obj.name!r}, which is not the model's. Put it into a keras.Model")
        return super().reducer_override(obj)


def _pickled(value: Any, model: Any) -> bytes:
    file = io.BytesIO()
    _ObjectPickler(file, model).dump(value)
    return file.getvalue()


def unpack(packed: bytes) -> dict[str, Any]:
    """Objects by key, ready for ``keras.saving.deserialize_keras_object``.

    Notes
    -----
    Runs code that was sent. Dask workers run whatever a client sends, so this opens no new door.
    """
    objects = opened(packed)
    return {key: Maker(value, objects) if isinstance(value, type) else value for key, value in objects.items()}


def opened(packed: bytes) -> dict[str, Any]:
    """Return the objects themselves, by key."""
    return dict(cloudpickle.loads(packed)) if packed else {}


def _walk(root: Any) -> Iterator[Any]:
    """Every function and every instance of a class with a config that is reached through attributes."""
    seen: dict[int, Any] = {}  # values keep what they stand for alive, so that no id is used twice
    stack = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, (list, tuple, set, frozenset)):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, FunctionType):
            yield value
        elif hasattr(type(value), "get_config") or _is_keras(type(value).__module__):
            yield value
            stack.extend(getattr(value, "__dict__", {}).values())


def _is_keras(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "keras"


def _class_key(cls: type) -> tuple[str, str]:
    return cls.__module__, keras.saving.get_registered_name(cls)


def _append_new(values: list[Any], value: Any) -> None:
    if not any(value is other for other in values):
        values.append(value)


def _look_up(module: str, name: str) -> list[Any]:
    """Return what a module holds under that name, for classes of which the model has a config only."""
    value = getattr(sys.modules.get(module), name, None)
    return [] if value is None else [value]


def _only(kind: str, name: str, candidates: list[Any]) -> Any:
    if not candidates:
        raise TypeError(
            f"The {kind} {name!r} was not found in the model. "
            "Keep it, or the object made of it, in an attribute of the layer that uses it."
        )
    if len(candidates) > 1:
        raise TypeError(
            f"The model uses {len(candidates)} different objects named {name!r}: {candidates}. Rename one of them."
        )
    return candidates[0]
