"""What the layers of a model hold in attributes of all kinds: also in containers, and in objects unknown to Keras."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.layers import flatten_layers

# In objects of these packages nothing of a model's own is kept; namespaces are of ``types``.
_FOREIGN = {"keras", "tensorflow", "numpy", "pandas", "jax", "torch", "dask", "distributed", "dask_train"}
_FOREIGN |= sys.stdlib_module_names - {"__main__", "types"}
_NO_HOLDERS = (type, types.ModuleType, types.FunctionType, types.MethodType)
# How deep objects may lie in each other.
_DEEPEST = 6

Place = list[Any]  # the number of a layer, the name of its attribute, and keys, numbers or names below it


def held(model: Any, wanted: Callable[[Any], bool]) -> Iterator[tuple[Place, Any]]:
    """Yield what is wanted of what the layers of a model hold, with each place at which it is held."""
    for number, layer in enumerate(flatten_layers(model)):
        for name in sorted(vars(layer)):
            # `_compile_config` has what `compile` was given, `optimizer` what is in use; `_self_*` is TensorFlow's.
            if name != "_compile_config" and not name.startswith("_self_"):
                yield from _below(vars(layer)[name], [number, name], wanted, set())


def put(layers: list[Any], place: Place, value: Any) -> None:
    """Let the holder at a place, as :func:`held` gives it, hold that."""
    number, *keys = place
    holder = layers[number]
    for key in keys[:-1]:
        holder = holder[key] if _is_container(holder) else getattr(holder, key)
    if _is_container(holder):
        holder[keys[-1]] = value
    else:
        setattr(holder, keys[-1], value)


def unknown_variables(model: Any) -> list[Any]:
    """Variables that a model holds and Keras does not count among its own.

    They are the backend's own, such as ``tf.Variable``, or those of layers in objects that Keras does not look into.
    Those of optimizers and metrics, and of other than numbers, are left out.
    """
    return [variable for _, variable in unknown_places(model)]


def unknown_places(model: Any) -> list[tuple[Place, Any]]:
    """As :func:`unknown_variables`, each with the first place that holds it; of a layer's, its number there as well."""
    known = {id(_native(variable)) for variable in model.variables}
    placed: dict[int, tuple[Place, Any]] = {}
    for place, value in held(model, lambda value: _is_variable(value) or isinstance(value, keras.Layer)):
        own = enumerate(value.variables) if isinstance(value, keras.Layer) else [(None, value)]
        for number, variable in own:
            if id(_native(variable)) not in known and _has_numbers(variable):
                where = place if number is None else [*place, number]
                placed.setdefault(id(_native(variable)), (where, variable))
    return list(placed.values())


def dtype_of(variable: Any) -> str:
    """Return the name of a variable's dtype, which may be the backend's own."""
    return str(getattr(variable.dtype, "name", variable.dtype))


def _below(value: Any, place: Place, wanted: Callable[[Any], bool], seen: set[int]) -> Iterator[tuple[Place, Any]]:
    if wanted(value):
        yield place, value
    elif len(place) < _DEEPEST and id(value) not in seen:
        for key, item in _items(value):
            seen.add(id(value))
            yield from _below(item, [*place, key], wanted, seen)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from ((key, item) for key, item in value.items() if isinstance(key, (str, int)))
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif _is_holder(value):
        yield from sorted(vars(value).items())


def _is_holder(value: Any) -> bool:
    if not hasattr(value, "__dict__") or isinstance(value, _NO_HOLDERS):
        return False
    of_keras = (keras.Layer, keras.Metric, keras.Variable, keras.optimizers.Optimizer)  # which know what they hold
    return type(value).__module__.partition(".")[0] not in _FOREIGN and not isinstance(value, of_keras)


def _is_container(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple))


def _is_variable(value: Any) -> bool:
    """Return one of Keras, or of TensorFlow's own."""
    cls = type(value)
    return isinstance(value, keras.Variable) or (hasattr(cls, "read_value") and hasattr(cls, "assign"))


def _native(variable: Any) -> Any:
    """Return what a variable is known by: the backend's own, which several of Keras may share.

    On JAX it is Keras' variable itself. What it holds is an array, which others hold as well until one is assigned to.
    """
    if isinstance(variable, keras.Variable) and keras.backend.backend() != "jax":
        return variable.value
    return variable


def _has_numbers(variable: Any) -> bool:
    try:
        kind = np.dtype(dtype_of(variable)).kind
    except TypeError:  # of strings, or of a resource
        return dtype_of(variable) == "bfloat16"
    return kind in "fiub" and None not in tuple(variable.shape)
