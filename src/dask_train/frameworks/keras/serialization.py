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
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras.src.saving.serialization_lib import ObjectSharingScope

from dask_train.frameworks.keras import state
from dask_train.frameworks.keras.by_value import describe, described_by_value, travels_by_value
from dask_train.frameworks.keras.custom_objects import CustomObjects, pack, unpack
from dask_train.frameworks.keras.state import Array

# Taking a model apart renames its functions, putting it together may set `floatx` of the process, for a moment.
_one_at_a_time = threading.RLock()


def model_to_parts(model: Any) -> tuple[dict[str, Any], list[Array]]:
    """Take a Keras model apart, without changing it.

    Parameters
    ----------
    model : keras.Model
        Sequential, functional or subclassed; built or not, compiled or not. Custom layers, losses, metrics, functions
        and lambdas need not be registered: they travel by value where they can't be imported (cloudpickle).

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
        A model overrides ``compile`` only, so that nobody can tell how to compile it again: it travels uncompiled.

    Notes
    -----
    The values of metrics stay behind, as do attributes that the model's own config does not tell.
    """
    try:
        with _one_at_a_time:
            return _take_apart(model)
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
        The model can't be rebuilt here; the message tells why.
    """
    try:
        with _one_at_a_time, _as_at_the_sender(header):
            return _put_together(header, arrays)
    except Exception as error:
        raise TypeError(
            f"Keras model {header['name']!r} of class {header['class']}, sent by Keras {header['keras']}, "
            f"can't be rebuilt by Keras {keras.__version__}: {describe(error)} "
            "A layer may create its variables outside build(), or take arguments that its get_config() does not tell. "
            "Try keras.saving.save_model and load_model on it: what they need, this needs."
        ) from error


def load_parts(model: Any, header: dict[str, Any], arrays: list[Array]) -> Any:
    """Let a model take over weights, seeds and optimizer state of one of the same structure; each array is copied once.

    Returns
    -------
    keras.Model
        That model; a new one where it has no weights yet, and can't be built as the other was.
    """
    waiting = iter(_as_sent(header, arrays))
    layers, seeds, optimizers = [list(itertools.islice(waiting, count)) for count in header["counts"]]
    with _one_at_a_time:
        if not all(layer.built for layer in model._flatten_layers()):
            return parts_to_model(header, arrays)
        state.load_layers(model, header["keys"], layers)
        state.assign(state.seed_states(model), seeds, "seed generators")
        state.load_optimizers(model, header["optimizers"], optimizers)
    return model


def model_size_bytes(model: Any) -> int:
    """Memory of a model's variables and of its optimizers' variables, without reading them."""
    variables = [*model.variables, *state.optimizer_variables(model)]
    return sum(math.prod(variable.shape) * np.dtype(variable.dtype).itemsize for variable in variables)


def _take_apart(model: Any) -> tuple[dict[str, Any], list[Array]]:
    custom = CustomObjects(model)
    with custom.functions_named(), described_by_value(model, custom.keep):
        config = _to_json(model, custom)
        compilations = [
            {"model": number, "config": _to_json(_compile_config(part), custom)}
            for number, part in enumerate(_models(model))
            if part.compiled and not _loses_compilation(part)
        ]
    keys, layers = state.save_layers(model)
    seeds = [state.as_array(variable) for variable in state.seed_states(model)]
    described = state.describe_optimizers(model)
    optimizers = [state.as_array(variable) for variable in state.optimizer_variables(model)]
    arrays = [*layers, *seeds, *optimizers]
    header = {
        "name": model.name,
        "class": _name(type(model)),
        "keras": keras.__version__,
        "floatx": _floatx(model),
        "dtype_policy": json.dumps(keras.dtype_policies.serialize(model.dtype_policy)),
        "config": config,
        "compilations": compilations,
        "custom_objects": pack(custom.objects),
        "keys": keys,
        "optimizers": described,
        "counts": [len(layers), len(seeds), len(optimizers)],
        "dtypes": [_foreign_dtype(array) for array in arrays],
    }
    return header, [_native(array) for array in arrays]


def _put_together(header: dict[str, Any], arrays: list[Array]) -> Any:
    custom_objects = unpack(header["custom_objects"])
    waiting = iter(_as_sent(header, arrays))
    layers, seeds, optimizers = [list(itertools.islice(waiting, count)) for count in header["counts"]]

    model = _from_json(header["config"], custom_objects)
    state.load_layers(model, header["keys"], layers)
    state.assign(state.seed_states(model), seeds, "seed generators")
    models = _models(model)
    for compilation in header["compilations"]:
        _compile(models[compilation["model"]], compilation["config"], custom_objects)
    state.load_optimizers(model, header["optimizers"], optimizers)
    return model


def _as_sent(header: dict[str, Any], arrays: list[Array]) -> list[Array]:
    """The arrays in the dtypes that they had."""
    dtypes = zip(arrays, header["dtypes"], strict=True)
    return [array.view(np.dtype(dtype)) if dtype else array for array, dtype in dtypes]


def _to_json(value: Any, custom: CustomObjects) -> str:
    with ObjectSharingScope():  # a layer that is used twice is one layer on the far side, too
        # Through JSON once, as in a `.keras` file: no part of the tree is shared, and tuples are lists.
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(value)))
    _drop_compilations(config)
    custom.take(config)
    return json.dumps(config)


def _from_json(config: str, custom_objects: dict[str, Any]) -> Any:
    with ObjectSharingScope():
        # Lambdas and bytecode are refused in safe mode. Dask workers run whatever a client sends, so it would only
        # refuse models that came by the same way as the code that uses them.
        return keras.saving.deserialize_keras_object(json.loads(config), custom_objects, safe_mode=False)


def _drop_compilations(config: Any) -> None:
    """Keras would compile while it builds, with new optimizer variables; we compile after, and fill them."""
    if isinstance(config, dict):
        config.pop("compile_config", None)
    for entry in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        _drop_compilations(entry)


def _models(model: Any) -> list[Any]:
    """A model and the models inside it, in an order that its structure fixes."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.Model)]


def _compile_config(model: Any) -> dict[str, Any]:
    config = dict(model.get_compile_config())
    if _compiles_as_keras(type(model)):
        # The optimizer as it is now: Keras' config has the one that `compile` was given, before it was wrapped in a
        # LossScaleOptimizer or replaced.
        config["optimizer"] = model.optimizer
    return config


def _compile(model: Any, config: str, custom_objects: dict[str, Any]) -> None:
    if _compiles_as_keras(type(model)):
        # Past a `compile` of its own: what that one set came by value. The optimizer in the config is wrapped in a
        # LossScaleOptimizer already, or shall not be.
        keras.Model.compile(model, **_from_json(config, custom_objects), auto_scale_loss=False)
    else:
        with keras.saving.custom_object_scope(custom_objects):
            model.compile_from_config(json.loads(config))


def _compiles_as_keras(cls: Any) -> bool:
    return cls.compile_from_config is keras.Model.compile_from_config


def _loses_compilation(model: Any) -> bool:
    cls = type(model)
    if cls.compile is keras.Model.compile or not _compiles_as_keras(cls) or travels_by_value(model):
        return False
    warnings.warn(
        f"Keras model {model.name!r} of class {_name(cls)} travels uncompiled, without the state of its optimizers, "
        "since it overrides compile(). Override get_compile_config() and compile_from_config(), too, to keep them.",
        stacklevel=5,
    )
    return True


def _floatx(model: Any) -> str:
    """The float type under which a model was compiled, also where that was set in another process."""
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
    """The name of a dtype that is not NumPy's own (bfloat16, float8), which has no buffer protocol."""
    return array.dtype.name if array.dtype.isbuiltin != 1 else None


def _native(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}") if _foreign_dtype(array) else array


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
