"""The layers and variables of a Keras model as text, so that one that was put together can be made the same.

Keras makes a layer again by its config, and builds it by the shape that it was built with. That leaves out the inner
layers of a block without ``build()``, which Keras builds by calling it; names and paths that it made up; and the order
of variables that were made late. Layers and variables are matched by the attributes in which they are held.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.internals import Functional, is_default
from dask_train.compat.keras.layers import (
    LISTS_OF_LAYERS,
    flatten_layers,
    inner_layers,
    is_adapted,
    is_itself_trainable,
    own_non_trainable,
    own_trainable,
    own_variables_by_kind,
    set_identity,
    set_variable_names,
    unlock,
)
from dask_train.compat.tensorflow import handle_name, set_handle_name
from dask_train.keras_models.feature_spaces import made_late, make_late
from dask_train.keras_models.remaking import MakingError

Array = np.ndarray[Any, np.dtype[Any]]

_LEADING = (keras.layers.Layer, keras.Variable, keras.random.SeedGenerator)
_DEFAULT_BUILDS = (keras.layers.Layer.build_from_config, keras.Model.build_from_config)
_PASSED_BY = ("_compile_config", "_inbound_nodes", "_metrics", "_modules", "_nodes", "_operations", "_outbound_nodes")
# Below this size a checksum of all bytes takes less time than the sums that stand for them.
_SMALL_BYTES = 1 << 16
_COLUMNS = 1024


def describe(model: Any) -> dict[str, Any]:
    """Return the layers and variables of a model, each with the attribute that holds it, in Keras' order.

    Returns
    -------
    dict
        ``layers`` and ``variables``: lists of dicts of strings, numbers, lists and dicts of them.
    """
    layers, variables, placed = list(flatten_layers(model)), model.variables, list(_places(model))
    places = {id(each): place for place, each in placed}
    known, weights = {id(layer) for layer in layers}, {id(weight) for weight in model.weights}
    # Keras does not train some that it saves: in attributes of a Sequential, for one.
    layers += [each for _, each in placed if isinstance(each, keras.layers.Layer) and id(each) not in known]
    numbers = {id(layer): number for number, layer in enumerate(layers)}
    return {
        "layers": [
            {
                "place": places[id(layer)],
                "class": type(layer).__name__,
                "name": layer.name,
                "path": layer.path,
                "dtype": keras.dtype_policies.serialize(layer.dtype_policy),
                "lora": [layer.lora_rank, layer.lora_alpha] if has_lora(layer) else None,
                "trainable": is_itself_trainable(layer),
                "built": bool(layer.built),
                "shapes": _plain(layer.get_build_config()) if layer.built else None,
                "late": made_late(layer),
                "inner": [numbers[id(inner)] for inner in inner_layers(layer)],
                "own": [[places[id(each)] for each in own] for own in own_variables_by_kind(layer)],
            }
            for layer in layers
        ],
        "variables": [
            {
                "place": places[id(variable)],
                "name": variable.name,
                "path": variable.path,
                "native": handle_name(variable.value),
                "shape": list(variable.shape),
                "dtype": str(variable.dtype),
                "trainable": bool(variable.trainable),
                "is_seed": id(variable) not in weights,
            }
            for variable in variables
        ],
    }


def complete(model: Any, structure: dict[str, Any]) -> None:
    """Build what is not built yet, and give layers and variables the names and the order that they had.

    Raises
    ------
    MakingError
        The model has other layers or variables; the message names the first.
    """
    by_place = dict(_places(model))
    layers: list[Any] = []
    for entry in structure["layers"]:
        layer = by_place.get(entry["place"])
        if isinstance(layer, keras.Sequential) and entry["built"] and not layer.built:
            _build([(layer, entry)])  # which gives it an InputLayer
            by_place = dict(_places(model))
        if isinstance(layer, keras.utils.FeatureSpace) and entry.get("late") and not is_adapted(layer):
            make_late(layer, entry["late"])
            by_place = dict(_places(model))
        if type(layer).__name__ != entry["class"]:
            here = "nothing" if layer is None else f"a {type(layer).__name__}"
            raise MakingError(f"In place of layer {_layer(entry)} there is {here} here.")
        layers.append(layer)
        _take_dtype(layer, entry["dtype"])
    _build(list(zip(layers, structure["layers"], strict=True)))
    for layer, entry in zip(layers, structure["layers"], strict=True):
        _take_lora(layer, entry.get("lora"))
    by_place = dict(_places(model))
    for layer, entry in zip(layers, structure["layers"], strict=True):
        # Inner layers have entries of their own.
        set_identity(layer, name=entry["name"], path=entry["path"], trainable=entry["trainable"])
        _reorder(inner_layers(layer), [layers[number] for number in entry["inner"]])
        for own, places in zip(own_variables_by_kind(layer), entry["own"], strict=True):
            _reorder(own, [by_place.get(place) for place in places])
    for entry in structure["variables"]:
        variable = by_place.get(entry["place"])
        if variable is not None:
            set_variable_names(variable, entry["name"], entry["path"])
            variable.trainable = entry["trainable"]
            set_handle_name(variable.value, entry["native"] or entry["path"])
    check(model, structure)


def follow(model: Any, structure: dict[str, Any]) -> None:
    """Let a model that is built have the layers trainable that are so in another of its kind; names stay its own.

    Raises
    ------
    MakingError
        It has other layers or variables; the message names the first.
    """
    by_place = dict(_places(model))
    for entry in structure["layers"]:
        if entry["place"] in by_place:
            by_place[entry["place"]].__dict__["_trainable"] = entry["trainable"]
    for entry in structure["variables"]:
        if entry["place"] in by_place:
            by_place[entry["place"]].trainable = entry["trainable"]
    check(model, structure)


def check(model: Any, structure: dict[str, Any]) -> None:
    """Check that a model has the very layers and variables, in the same order.

    Raises
    ------
    MakingError
        It has others; the message names the first.
    """
    here = describe(model)
    if (difference := first_difference(structure, here)) is not None:
        raise MakingError(difference)


def first_difference(there: dict[str, Any], here: dict[str, Any]) -> str | None:
    """In what the layers or variables of one model differ from another's, as a sentence; None if they do not."""
    for one, other in zip(there["layers"], here["layers"], strict=False):
        if (one["place"], one["class"]) != (other["place"], other["class"]):
            return f"Where it had layer {_layer(one)}, it has {_layer(other)} here."
    for one, other in zip(there["variables"], here["variables"], strict=False):
        if one["place"] != other["place"]:
            return f"Where it had variable {one['path']!r}, it has {other['path']!r} here."
        for what in ("shape", "dtype", "trainable"):
            if what == "dtype" and other["is_seed"]:
                continue  # the same numbers, as integers of the backend's choice
            if one[what] != other[what]:
                return f"Variable {one['path']!r} had {what} {one[what]}, and has {other[what]} here."
    for what, kind in (("layers", "layer"), ("variables", "variable")):
        if len(there[what]) != len(here[what]):
            had, has = len(there[what]), len(here[what])
            more, where = (there, "is missing") if had > has else (here, "is new")
            first = more[what][min(had, has)]["path"]
            return f"It had {had} {what}, and has {has}: {kind} {first!r} {where} here."
    return None


def checksums(variables: list[Any], as_array: Callable[[Any], Array]) -> list[int]:
    """Return what the values of variables come to, each; see :func:`checksum`."""
    return [checksum(as_array(variable)) for variable in variables]


def check_values(variables: list[Any], expected: list[int] | None, as_array: Callable[[Any], Array]) -> None:
    """Check that variables have the values that these checksums are of; without checksums nothing is checked.

    Raises
    ------
    MakingError
        One has not; the message names it.
    """
    if expected is None:
        return
    actual = checksums(variables, as_array)
    for variable, one, other in zip(variables, actual, expected, strict=True):
        if one != other:
            raise MakingError(
                f"Variable {variable.path!r} has other values here than it had. They were damaged on the way, or its "
                "layer saves less than it has: see save_own_variables() and load_own_variables() of its class."
            )


def checksum(array: Array) -> int:
    """Return a number that another value of an array, or an order of it, is most unlikely to have.

    Of a large array it is the CRC-32 of the sums of all columns and all rows of it, as whole numbers in a table 8 KiB
    wide: these take less time than a CRC-32 of all bytes, and miss no single change.
    """
    flat = array.reshape(-1).view(np.uint8)
    if flat.nbytes < _SMALL_BYTES:
        return zlib.crc32(flat.data)
    whole = flat.nbytes - flat.nbytes % (8 * _COLUMNS)
    table = flat[:whole].view(np.uint64).reshape(-1, _COLUMNS)
    sums = zlib.crc32(table.sum(axis=1).data, zlib.crc32(table.sum(axis=0).data))
    return zlib.crc32(flat[whole:].data, sums)


def _places(model: Any) -> Iterator[tuple[str, Any]]:
    """Every layer, variable and seed generator in a model, each once, with the attributes that lead to it."""
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("model", model)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, _LEADING):
            if id(value) in seen:
                continue
            seen.add(id(value))
            yield place, value
        stack.extend(reversed(list(_below(place, value))))


def _below(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, keras.layers.Layer):
        attributes = {**vars(value), **vars(value).get("_modules", {})}
        first = ["_layers"] if isinstance(value, (Functional, keras.Sequential)) else []
        named = sorted(name for name in attributes if name not in LISTS_OF_LAYERS and not _is_passed_by(name))
        for name in [*first, *named, *(each for each in LISTS_OF_LAYERS if each in attributes)]:
            yield f"{place}.{name}", attributes[name]
    elif isinstance(value, keras.random.SeedGenerator):
        yield f"{place}.state", value.state
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{place}[{key!r}]", item
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield f"{place}[{index}]", item


def _is_passed_by(name: str) -> bool:
    """Return whether an attribute is TensorFlow's, or part of compilation, or of calls that were made of a layer."""
    return name.startswith("_self_") or name in _PASSED_BY


def _take_dtype(layer: Any, policy: Any) -> None:
    """Let a layer that its block has made have the precision, or the quantization, that it was given later."""
    if keras.dtype_policies.serialize(layer.dtype_policy) != policy:
        layer.dtype_policy = keras.dtype_policies.deserialize(policy)


def has_lora(layer: Any) -> bool:
    """Whether ``enable_lora`` has given a layer of Keras' adapters, and a kernel that is not trained any more."""
    return hasattr(layer, "enable_lora") and bool(getattr(layer, "lora_enabled", False))


def _take_lora(layer: Any, lora: list[Any] | None) -> None:
    """Let a layer have the adapters that it had; one that Keras builds with them forgets their ``lora_alpha``."""
    if lora is None:
        return
    rank, alpha = lora
    if not has_lora(layer):
        layer.enable_lora(rank)
    layer.lora_alpha = alpha


def _build(layers: list[tuple[Any, dict[str, Any]]]) -> None:
    """Build layers by the shapes that they were built with: outer ones first, which build inner ones as they want."""
    waiting = [(layer, entry) for layer, entry in layers if entry["built"] and _lacks(layer, entry)]
    while waiting:
        failed = []
        for layer, entry in waiting:
            try:
                if _lacks(layer, entry):
                    _build_one(layer, entry)
            except Exception as error:
                failed.append((layer, entry, error))
        if len(failed) == len(waiting):
            _, entry, first = failed[0]
            raise MakingError(
                f"Layer {_layer(entry)} can't be built by the shapes {entry['shapes']}, as it was: {first}"
            ) from first
        waiting = [(layer, entry) for layer, entry, _ in failed]


def _lacks(layer: Any, entry: dict[str, Any]) -> bool:
    if layer.built and entry.get("lora") and not has_lora(layer):
        return False  # only what it is given below
    own = len(own_trainable(layer)) + len(own_non_trainable(layer))
    return not layer.built or own < len(entry["own"][0]) + len(entry["own"][1])


def _build_one(layer: Any, entry: dict[str, Any]) -> None:
    builds = not is_default(layer.build) or type(layer).build_from_config not in _DEFAULT_BUILDS
    if entry["shapes"] is not None and builds:
        unlock(layer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layer.build_from_config(_shapes(entry["shapes"]))
    layer.built = True


def _reorder(layers: list[Any], wanted: list[Any]) -> None:
    """Put a list of Keras' in another order, past its tracking; not where it has other members: that is seen later."""
    order = [id(each) for each in wanted]
    if [id(each) for each in layers] != order and sorted(id(each) for each in layers) == sorted(order):
        list.__setitem__(layers, slice(None), wanted)


def _layer(entry: dict[str, Any]) -> str:
    return f"{entry['path'] or entry['name']!r} ({entry['class']}, {entry['place']})"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _shapes(value: Any) -> Any:
    """Shapes as Keras has them: tuples, in dicts and lists."""
    if isinstance(value, dict):
        return {key: _shapes(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    return tuple(value) if all(item is None or isinstance(item, int) for item in value) else [*map(_shapes, value)]
