"""What pickles don't tell alike in each process: tensors, torch modules, Keras models and layers, boosters.

Frameworks are recognised by names, so that none is imported for a value of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dask_train.identity.parts import ValueParts, bytes_of
from dask_train.identity.torch_archives import exported_parts, script_parts

# Attributes of torch's modules that say nothing of what they predict: the mode, where prediction sets it, and functions
# compiled from the others.
_MODE, _COMPILED = "training", "_compiled_call_impl"
_OF_COMPILER = "_dynamo_"  # how names begin of attributes that torch.compile gives to tensors
_NAMES = {"name", "path", "native"}  # of layers and variables; those that count are in the config
# Where a Keras config holds the name of a layer or an operation.
_NAMED_IN = {"name", "keras_history", "input_layers", "output_layers"}


def special_parts(value: Any, *, with_modes: bool = False) -> ValueParts | None:
    """Return the parts of a value of a framework, of torch modules perhaps with their modes; None for others."""
    for cls in type(value).__mro__:
        parts = _SPECIAL.get(f"{cls.__module__}.{cls.__qualname__}")
        if parts is not None:
            return _torch_module(value, with_mode=with_modes) if parts is _torch_module else parts(value)
    return None


def _tensor(tensor: Any) -> ValueParts | None:
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return None
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = plain.view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
    about = (type(tensor).__name__, str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad)
    marks = {name: value for name, value in vars(tensor).items() if not name.startswith(_OF_COMPILER)}
    attributes = tuple(each for name in sorted(marks) for each in (name, marks[name]))  # the user's own, which travel
    return ValueParts("tensor", (*about, *attributes), bytes_of(data))


def _torch_module(module: Any, *, with_mode: bool = False) -> ValueParts | None:
    from torch.nn.utils import parametrize

    cls = parametrize.type_before_parametrizations(module)
    own_reduce = cls.__reduce_ex__ is not object.__reduce_ex__ or cls.__reduce__ is not object.__reduce__
    if own_reduce:
        return None
    state = cls.__getstate__(module)
    if not isinstance(state, Mapping):
        return None
    left_out = {_COMPILED} if with_mode else {_COMPILED, _MODE}
    state = {name: state[name] for name in sorted(state) if name not in left_out}
    for name in [name for name in state if re.search("_hooks(_|$)", name) and isinstance(state[name], Mapping)]:
        state[name] = list(state[name].values())  # by numbers that are one after the other in a process
    hooked = sorted(getattr(module, "parametrizations", ())) if parametrize.is_parametrized(module) else []
    return ValueParts("torch module", (cls, hooked, *(each for pair in state.items() for each in pair)))


def _keras_model(model: Any) -> ValueParts:
    from dask_train.keras_models.serialization import model_to_parts

    return ValueParts("Keras model", (*keras_contents(*model_to_parts(model, checksums=False)),))


def keras_contents(header: Mapping[str, Any], arrays: Any) -> tuple[Any, ...]:
    """Return what a Keras model consists of, of the parts in which it travels."""
    from dask_train.keras_models.custom_objects import opened

    description = {
        **header,
        "config": _with_own_numbers(json.loads(header["config"])),
        "custom_objects": opened(header["custom_objects"]),
    }
    # Keras numbers the parts within a model that have no names of their own, as the second one of this process.
    description["structure"] = {
        kind: [{name: value for name, value in each.items() if name not in _NAMES} for each in several]
        for kind, several in header["structure"].items()
    }
    return description, list(arrays)


def _with_own_numbers(config: Any) -> Any:
    """Return a model's config with operations numbered within the model.

    An operation of ``keras.ops`` can't be named by users: Keras calls it ``"add_7"``, as the eighth one of its process.
    """
    numbers: dict[str, int] = {}

    def find(value: Any) -> None:
        if isinstance(value, dict) and str(value.get("module")).startswith("keras.src.ops.") and "name" in value:
            numbers.setdefault(value["name"], len(numbers))
        for inner in _inner(value):
            find(inner)

    def renamed(value: Any, named: bool = False) -> Any:
        if isinstance(value, dict):
            return {key: renamed(inner, named or key in _NAMED_IN) for key, inner in value.items()}
        if isinstance(value, list):
            return [renamed(inner, named) for inner in value]
        return f"operation {numbers[value]}" if named and isinstance(value, str) and value in numbers else value

    find(config)
    return renamed(config)


def _inner(value: Any) -> list[Any]:
    """Return the values that one of JSON holds."""
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _keras_layer(layer: Any) -> ValueParts:
    import keras

    arrays = [keras.ops.convert_to_numpy(variable) for variable in getattr(layer, "variables", ())]
    return ValueParts("Keras layer", (type(layer), layer.get_config(), arrays))


def _xgboost(booster: Any) -> ValueParts:
    return ValueParts("booster", (bytes(booster.save_raw("ubj")),))


def _lightgbm(booster: Any) -> ValueParts:
    return ValueParts("booster", (booster.model_to_string(num_iteration=-1), booster.best_iteration))


_SPECIAL: dict[str, Callable[[Any], ValueParts | None]] = {
    "torch.Tensor": _tensor,
    "torch.jit._script.ScriptModule": script_parts,
    "torch.export.exported_program.ExportedProgram": exported_parts,
    "torch.nn.modules.module.Module": _torch_module,
    "keras.src.models.model.Model": _keras_model,
    "keras.src.saving.keras_saveable.KerasSaveable": _keras_layer,
    "xgboost.core.Booster": _xgboost,
    "lightgbm.basic.Booster": _lightgbm,
}
