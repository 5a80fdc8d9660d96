"""A Keras model as a header and arrays, and back: structure, weights, compilation, optimizer and seed state.

Knows nothing of Dask; :mod:`dask_train.cluster.keras_values` carries the parts. Keras' own pickles go through a zip
file in memory, know no class that the far side has not registered, and forget the seed generators.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import threading
from collections.abc import Iterator
from typing import Any, Literal

import keras
import numpy as np

from dask_train.compat.keras.compiled import losses_passed, metrics_passed
from dask_train.compat.keras.internals import ObjectSharingScope
from dask_train.compat.keras.layers import flatten_layers
from dask_train.input_errors import warn_at_the_call
from dask_train.keras_models import state, structure
from dask_train.keras_models.by_value import described_by_value, travels_by_value
from dask_train.keras_models.complete_configs import complete_configs
from dask_train.keras_models.custom_objects import CustomObjects, unpack
from dask_train.keras_models.remaking import MakingError, describe
from dask_train.keras_models.state import Array

# What `compile` takes and attributes change later, of which Keras' config knows nothing.
_SET_LATER = ("run_eagerly", "steps_per_execution")
# In place of a dict, its keys and values.
_PAIRS = "dask_train_pairs"
# Taking a model apart renames its functions, putting it together may set `floatx` of the process, for a moment.
_one_at_a_time = threading.RLock()


def model_to_parts(
    model: Any, *, optimizers: bool | Literal["new"] = True, checksums: bool = True
) -> tuple[dict[str, Any], list[Array]]:
    """Take a Keras model apart, without changing it.

    Parameters
    ----------
    model : keras.Model
        Sequential, functional or subclassed; built or not, compiled or not. Custom layers, losses, metrics, functions
        and lambdas need not be registered: they travel by value where they can't be imported (cloudpickle).
    optimizers
        False to leave optimizers behind, and their state, where the model is to predict or evaluate only: it arrives
        compiled with another one. ``"new"`` to send them as they were before their first step, without a state.
    checksums
        False if what is made of the parts has checksums of its own, as files have.

    Returns
    -------
    header : dict
        Strings, bytes, numbers, lists and dicts of them.
    arrays : list of np.ndarray
        Weights, files of layers, seed states and optimizer variables, C-contiguous, of native dtypes (bfloat16 and its
        like as unsigned integers). Snapshots; on the CPU without a copy, except on the torch backend (one).

    Raises
    ------
    TypeError
        Something in the model can't be sent; the message names it.

    Warns
    -----
    UserWarning
        A model overrides ``compile`` only, so that it is unknown how to compile it again: it travels uncompiled.

    Notes
    -----
    The values of metrics stay behind, as do attributes of a class with a ``get_config`` that does not tell them.
    Checksums take half the time of a copy, here and where the model is put together.
    """
    try:
        with _one_at_a_time:
            return _take_apart(model, optimizers=optimizers, checksums=checksums)
    except Exception as error:
        raise TypeError(
            f"Keras model {model.name!r} of class {_name(type(model))} can't be sent: {describe(error)} "
            "Layers are made again from get_config() or, where that tells too little, from their attributes. "
            "Keep what can't be pickled out of both, or implement get_config() and from_config() on that class."
        ) from error


def parts_to_model(header: dict[str, Any], arrays: list[Array]) -> Any:
    """Put a Keras model together from what :func:`model_to_parts` made of it.

    Parameters
    ----------
    header, arrays
        As they were returned; the arrays may be read-only. Each is copied once, into its variable.

    Returns
    -------
    keras.Model
        Ready for ``fit`` to continue: with the optimizer's state where the model was compiled.

    Raises
    ------
    TypeError
        The model can't be rebuilt here; the message says why.
    """
    try:
        with _one_at_a_time, _as_at_the_sender(header):
            return _put_together(header, arrays)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        raise TypeError(
            f"Keras model {header['name']!r} of class {header['class']} can't be rebuilt: there is no module "
            f"{error.name!r} here, which it uses. Install it on every Dask worker, or send a file of your own with "
            f"client.upload_file('{name}.py')."
        ) from error
    except Exception as error:
        raise TypeError(
            f"Keras model {header['name']!r} of class {header['class']}, sent by Keras {header['keras']}, "
            f"can't be rebuilt by Keras {keras.__version__}: {describe(error)} "
            "A layer may create its variables outside build(), or take arguments that its get_config() does not tell. "
            "Try keras.saving.save_model and load_model on it: what they need, this needs."
        ) from error


def load_parts(model: Any, header: dict[str, Any], arrays: list[Array]) -> None:
    """Let a model take over weights, seeds and optimizer state of one that was made of it; each array is copied once.

    Where it has no weights yet it is built as the other was; where it can't be, since a call makes layers of it, it
    gets the layers of a new one.

    Raises
    ------
    ValueError, MakingError
        It has other layers, shapes or optimizers than the one that was taken apart.
    """
    if not state.is_built(model):
        try:
            with _one_at_a_time:
                structure.complete(model, header["structure"])
        except MakingError:
            _become(model, parts_to_model(header, arrays))
            return
    restore_parts(model, header, arrays)


def _become(model: Any, other: Any) -> None:
    """Let a model hold what another of its class holds, except for the methods that Keras has bound to it."""
    bound = {name: vars(model)[name] for name in ("build", "quantize") if name in vars(model)}
    vars(model).clear()
    vars(model).update({**vars(other), **bound})


def restore_parts(model: Any, header: dict[str, Any], arrays: list[Array]) -> None:
    """Do as :func:`load_parts`, of a model that has its weights; what it takes to make one need not be in the header.

    Raises
    ------
    ValueError, MakingError
        The model has other layers, shapes or optimizers than the one that was taken apart.
    """
    waiting = iter(_as_sent(header, arrays))
    layers, seeds, optimizers = [list(itertools.islice(waiting, count)) for count in header["counts"]]
    with _one_at_a_time:
        structure.follow(model, header["structure"])
        _load_layers(model, header, layers, seeds)
        state.load_optimizers(model, header["optimizers"], optimizers)
        for name in state.load_unknown(model, header.get("unknown", []), list(waiting)):
            warn_at_the_call(
                f"Variable {name!r}, which Keras does not count among the weights of model {model.name!r}, was made "
                "while it was trained, and has no place in the model here: its value is lost. Make it in __init__, "
                "with self.add_weight(...)."
            )


def model_size_bytes(model: Any) -> int:
    """Memory of a model's variables and of its optimizers' variables, without reading them."""
    variables = [*model.variables, *state.optimizer_variables(model)]
    return sum(math.prod(variable.shape) * np.dtype(variable.dtype).itemsize for variable in variables)


def _take_apart(
    model: Any, *, optimizers: bool | Literal["new"], checksums: bool
) -> tuple[dict[str, Any], list[Array]]:
    custom = CustomObjects(model)
    by_value = described_by_value(model, custom.instances, custom.keep, custom.sendable)
    with custom.functions_named(), by_value, complete_configs():
        config = _to_json(model, custom)
        compiled = [(number, part) for number, part in enumerate(_models(model)) if part.compiled]
        sent = [(number, part) for number, part in compiled if not _loses_compilation(part)]
        compilations = [
            {
                "model": number,
                "config": _to_json(_compile_config(part, optimizers=bool(optimizers)), custom),
                "set": {
                    name: getattr(part, name) for name in _SET_LATER if isinstance(getattr(part, name), bool | int)
                },
            }
            for number, part in sent
        ]
    keys, layers = state.save_layers(model)
    seeds = [state.as_array(variable) for variable in state.seed_states(model)]
    described = state.describe_optimizers(model, checksums=checksums) if optimizers is True else []
    slots = [state.as_array(variable) for variable in state.optimizer_variables(model)] if optimizers is True else []
    unknown, values = state.save_unknown(model)
    arrays = [*layers, *seeds, *slots, *values]
    header = {
        "name": model.name,
        "class": _name(type(model)),
        "keras": keras.__version__,
        "floatx": _floatx(model),
        "dtype_policy": json.dumps(keras.dtype_policies.serialize(model.dtype_policy)),
        "config": config,
        "compilations": compilations,
        "uncompiled": len(sent) < len(compiled),
        "custom_objects": custom.pack(),
        "structure": structure.describe(model),
        "checksums": structure.checksums(model.variables, state.as_array) if checksums else None,
        "keys": keys,
        "optimizers": described,
        "unknown": unknown,
        "counts": [len(layers), len(seeds), len(slots)],
        "dtypes": [_foreign_dtype(array) for array in arrays],
    }
    return header, [_native(array) for array in arrays]


def _put_together(header: dict[str, Any], arrays: list[Array]) -> Any:
    custom_objects = unpack(header["custom_objects"])
    waiting = iter(_as_sent(header, arrays))
    layers, seeds, optimizers = [list(itertools.islice(waiting, count)) for count in header["counts"]]

    model = _from_json(header["config"], custom_objects)
    structure.complete(model, header["structure"])
    _load_layers(model, header, layers, seeds)
    models = _models(model)
    for compilation in header["compilations"]:
        _compile(models[compilation["model"]], compilation["config"], custom_objects)
        for name, value in compilation["set"].items():
            setattr(models[compilation["model"]], name, value)
    state.load_optimizers(model, header["optimizers"], optimizers, uncompiled=header["uncompiled"])
    state.load_unknown(model, header["unknown"], list(waiting))
    return model


def _load_layers(model: Any, header: dict[str, Any], layers: list[Array], seeds: list[Array]) -> None:
    state.load_layers(model, header["keys"], layers)
    state.assign(state.seed_states(model), seeds, "seed generators")
    structure.check_values(model.variables, header["checksums"], state.as_array)


def _as_sent(header: dict[str, Any], arrays: list[Array]) -> list[Array]:
    """Return the arrays in the dtypes that they had."""
    dtypes = zip(arrays, header["dtypes"], strict=True)
    return [array.view(np.dtype(dtype)) if dtype else array for array, dtype in dtypes]


def _to_json(value: Any, custom: CustomObjects) -> str:
    with ObjectSharingScope():  # a layer that is used twice is one layer on the far side, too
        # Through JSON once, as in a `.keras` file: no part of the tree is shared, and tuples are lists.
        config = json.loads(json.dumps(_with_pairs(keras.saving.serialize_keras_object(value))))
    _drop_what_is_done_later(config)
    _number_shared_objects(config, {})
    custom.take(config)
    return json.dumps(config)


def _with_pairs(config: Any) -> Any:
    """Return a config with pairs in place of each dict whose keys are not all text, of which JSON would make text."""
    if isinstance(config, list | tuple):
        return [_with_pairs(entry) for entry in config]
    if not isinstance(config, dict):
        return config
    if all(isinstance(key, str) for key in config):
        return {key: _with_pairs(entry) for key, entry in config.items()}
    if not all(key is None or isinstance(key, str | int | float) for key in config):
        return config  # which can't be sent, as JSON says
    return {_PAIRS: [[key, _with_pairs(entry)] for key, entry in config.items()]}


def _loads(config: str) -> Any:
    """Return a config with the dicts that :func:`_with_pairs` has replaced."""
    return json.loads(config, object_hook=lambda entry: dict(entry[_PAIRS]) if entry.keys() == {_PAIRS} else entry)


def _from_json(config: str, custom_objects: dict[str, Any]) -> Any:
    with ObjectSharingScope():
        # Lambdas and bytecode are refused in safe mode. Dask workers run whatever a client sends, so it would only
        # refuse models that came by the same way as the code that uses them.
        return keras.saving.deserialize_keras_object(_loads(config), custom_objects, safe_mode=False)


def _drop_what_is_done_later(config: Any) -> None:
    """Keras would compile while it builds, with new optimizer variables; and build blocks that only a call builds."""
    if isinstance(config, dict):
        for name in ("compile_config", "build_config"):
            config.pop(name, None)
    for entry in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        _drop_what_is_done_later(entry)


def _number_shared_objects(config: Any, numbers: dict[int, int]) -> None:
    """Give numbers to what a config has in several places; Keras names it by addresses, new in each process."""
    if isinstance(config, dict) and "shared_object_id" in config:
        config["shared_object_id"] = numbers.setdefault(config["shared_object_id"], len(numbers))
    for entry in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        _number_shared_objects(entry, numbers)


def _models(model: Any) -> list[Any]:
    """Return a model and the models inside it, in an order that its structure fixes."""
    return [layer for layer in flatten_layers(model) if isinstance(layer, keras.Model)]


def _compile_config(model: Any, *, optimizers: bool) -> dict[str, Any]:
    config = dict(model.get_compile_config())
    if not optimizers and "optimizer" in config:
        config["optimizer"] = "sgd"
    elif _compiles_as_keras(type(model)):
        # The optimizer as it is now: Keras' config has the one that `compile` was given, before it was wrapped in a
        # LossScaleOptimizer or replaced.
        config["optimizer"] = model.optimizer
    return _with_what_is_left(model, config) if _compiles_as_keras(type(model)) else config


def _with_what_is_left(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Return what a model was compiled with, and what an earlier ``compile`` has left."""
    losses = losses_passed(model) if config.get("loss") is None else {}
    metrics = {} if _tells_metrics(config) else metrics_passed(model)
    return {**config, **losses, **metrics}


def _tells_metrics(config: dict[str, Any]) -> bool:
    return any(config.get(kind) is not None for kind in ("metrics", "weighted_metrics"))


def _compile(model: Any, config: str, custom_objects: dict[str, Any]) -> None:
    if _compiles_as_keras(type(model)):
        # Past a `compile` of its own: what that one set came by value. The optimizer in the config is wrapped in a
        # LossScaleOptimizer already, or shall not be.
        keras.Model.compile(model, **_from_json(config, custom_objects), auto_scale_loss=False)
    else:
        with keras.saving.custom_object_scope(custom_objects):
            model.compile_from_config(_loads(config))


def _compiles_as_keras(cls: Any) -> bool:
    return cls.compile_from_config is keras.Model.compile_from_config


def _loses_compilation(model: Any) -> bool:
    cls = type(model)
    if cls.compile is keras.Model.compile or not _compiles_as_keras(cls) or travels_by_value(model):
        return False
    warn_at_the_call(
        f"Keras model {model.name!r} of class {_name(cls)} travels uncompiled, without the state of its optimizers, "
        "since it overrides compile(). Override get_compile_config() and compile_from_config(), too, to keep them."
    )
    return True


def _floatx(model: Any) -> str:
    """Return the float type under which a model was compiled, also where that was set in another process."""
    loss = next((metric for metric in model.metrics if metric.name == "loss"), None)
    return str(loss.dtype if loss is not None else keras.config.floatx())


@contextlib.contextmanager
def _as_at_the_sender(header: dict[str, Any]) -> Iterator[None]:
    """Defaults that a rebuilt model takes where its config does not tell: learning rate and loss, inner layers."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_dtype_policy(keras.dtype_policies.deserialize(json.loads(header["dtype_policy"])))
    if floatx != header["floatx"]:  # of the whole process, so it is touched only where it must be
        keras.config.set_floatx(header["floatx"])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        if floatx != header["floatx"]:
            keras.config.set_floatx(floatx)


def _foreign_dtype(array: Array) -> str | None:
    """Return the name of a dtype that is not NumPy's own (bfloat16, float8), which has no buffer protocol."""
    return array.dtype.name if array.dtype.isbuiltin != 1 else None


def _native(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}") if _foreign_dtype(array) else array


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
