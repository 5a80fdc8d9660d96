"""Check whether training may resume from a checkpoint, by the model, compilation and data it began with.

All of it is plain values, so it is stored in the checkpoint. What names a place in code, or differs between two calls
of one program, is left out: modules, numbers in names, initial values, seeds, whose state is in the checkpoint.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import keras

from dask_train.compat.keras.optimizers import learning_rate_of
from dask_train.data.columns import Column, Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.roles.weights import value_of
from dask_train.fitting.spec import FitTask
from dask_train.keras_models import state
from dask_train.keras_models.custom_objects import unpack

# Settings of Keras that layers and losses ask for when they are called.
_SETTINGS = ("epsilon", "floatx", "image_data_format")
# How many differences a message names.
_NAMED = 6
# Of Keras' configs: places in code, what building adds, how steps are run rather than what they do, initial values.
_LEFT_OUT = re.compile(
    r"module|registered_name|shared_object_id|build_config|build_input_shape|build_shapes_dict|built|variables|"
    r"\w*initializer|seed|seed_generator|run_eagerly|jit_compile|steps_per_execution|auto_scale_loss"
)
# What custom objects are called on their way: a key, where it was found, a number.
_KEY = re.compile(r"dask_train>(?P<name>.*?)(_\d+_by_dask_train|#\d+)?")
_NUMBERED = re.compile(r"_\d+$")

Configuration = dict[str, Any]


def _described(column: Column) -> dict[str, Any]:
    """Return what a column is to a model, to which batches of sparse rows are as dense as all others."""
    return {name: value for name, value in asdict(column).items() if name != "is_sparse"}


def configuration_of(task: FitTask, schema: Columns, model: Any) -> Configuration:
    """Return what training is begun with, of a model put together from ``task`` and not trained since."""
    custom = unpack(task.header["custom_objects"])
    names: dict[str, str] = {}
    config = json.loads(task.header["config"])
    _collect_names(config, names)
    compiled = [json.loads(compilation["config"]) for compilation in task.header["compilations"]]
    return {
        "keras": keras.__version__,
        "model": _comparable(config, names, custom),
        "compiled": [_comparable(each, {}, custom) for each in compiled],
        "dtype_policy": _comparable(json.loads(task.header["dtype_policy"]), {}, {}),
        "settings": {name: getattr(keras.config, name)() for name in _SETTINGS},
        "data": {"columns": list(map(_described, schema)), "layout": task.columns.places()},
        "frame": task.frame,
        "class_weight": task.class_weight,
        "optimizers": [  # besides those that a compilation names
            [type(optimizer).__name__, places]
            for optimizer, places in state.held_optimizers(model)
            if not any(place[1:] == ["optimizer"] for place in places)
        ],
        "learning_rate": rates_of(model),
    }


def rates_of(model: Any) -> list[float | None]:
    """Return the learning rate of each optimizer that a model holds; None for one that follows a schedule."""
    return [None if rate is None else float(value_of(rate)) for rate in _rates(model)]


def set_rates(model: Any, rates: list[float | None]) -> None:
    """Set the learning rate of each optimizer that a model holds."""
    for rate, value in zip(_rates(model), rates, strict=True):
        if rate is not None:
            rate.assign(value)


def check_same(then: Configuration, now: Configuration, *, rates_then: list[float | None], new_rate: bool) -> None:
    """Check that training continues as it began.

    Parameters
    ----------
    then, now
        What the checkpoint began with, and what resumes from it.
    rates_then
        The learning rates when the checkpoint was kept, which are as good as those that it was begun with.
    new_rate
        Whether another learning rate is meant.

    Raises
    ------
    CheckpointError
        It would not; the message says what differs.
    """
    same_keras = then["keras"] == now["keras"]
    names = [name for name in now if name in then and name not in ("keras", "learning_rate")]
    differences = [each for name in names for each in _differences(then[name], now[name], name, same_keras)]
    rate = ""
    if not new_rate and not any(
        _same_rates(rates, now["learning_rate"]) for rates in (then["learning_rate"], rates_then)
    ):
        differences += [f"the learning rate was {_shown(rates_then)}, and is {_shown(now['learning_rate'])}"]
        rate = " For another learning rate, and nothing else, pass resume='new_learning_rate'."
    if differences:
        more = f"; and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
        raise CheckpointError(
            f"The checkpoint was begun with something else: {'; '.join(differences[:_NAMED])}{more}.",
            "Going on with it would give neither the one model nor the other.",
            f"Pass the model, data and arguments of then, or checkpoint= another folder to begin anew.{rate}",
        )


def _rates(model: Any) -> list[Any]:
    rates = [learning_rate_of(state.innermost(optimizer)) for optimizer, _ in state.held_optimizers(model)]
    return [rate if isinstance(rate, keras.Variable) else None for rate in rates]


def _same_rates(some: list[float | None], others: list[float | None]) -> bool:
    return len(some) == len(others) and all(map(_same, some, others))


def _shown(rates: list[float | None]) -> str:
    return ", ".join("a schedule" if rate is None else f"{rate:.6g}" for rate in rates)


def _collect_names(config: Any, names: dict[str, str]) -> None:
    """Names of layers, which Keras numbers anew in each model of a process, in the order in which they come."""
    if isinstance(config, list):
        for item in config:
            _collect_names(item, names)
    if not isinstance(config, dict):
        return
    # A layer's own config may have a dict of that name, too, which is no object of Keras.
    is_object = "class_name" in config and config["class_name"] != "DTypePolicy"
    if is_object and isinstance(inner := config.get("config"), dict):
        inner = inner.get("dask_train_by_value", inner)
        if isinstance(name := inner.get("name", config.get("name")), str):
            kind = "input" if config["class_name"] == "InputLayer" else "layer"  # building a model may add the former
            names.setdefault(name, f"{kind} {sum(known.startswith(kind) for known in names.values())}")
    for item in config.values():
        _collect_names(item, names)


def _comparable(value: Any, names: dict[str, str], custom: dict[str, Any]) -> Any:
    """Return a config without what may differ; see the module."""
    if isinstance(value, list):
        items = [item for item in value if not (isinstance(item, dict) and item.get("class_name") == "InputLayer")]
        return [names.get(item, item) if isinstance(item, str) else _comparable(item, names, custom) for item in items]
    if isinstance(value, str):
        match = _KEY.fullmatch(value)
        return value if match is None else _plain(custom.get(value), match["name"])
    if not isinstance(value, dict):
        return value
    config = {}
    for key, item in value.items():
        if key == "name" and isinstance(item, str):
            config[key] = names.get(item) or _NUMBERED.sub("", item)
        elif key == "learning_rate" and isinstance(item, int | float):
            config[key] = "a number"
        elif not _LEFT_OUT.fullmatch(key.lstrip("_")):
            config[key] = _comparable(item, names, custom)
    return config


def _plain(value: Any, name: str) -> Any:
    """Return a value that no config can hold, if it is one to compare; of others what they are called."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, type(item).__name__) for item in value]
    return name.rpartition(".")[2]


def _differences(then: Any, now: Any, where: str, same_keras: bool) -> Iterator[str]:
    """Yield what differs, in words; what only one version of Keras writes down is passed by."""
    if isinstance(then, dict) and isinstance(now, dict) and then.get("class_name") == now.get("class_name"):
        for key in [*then, *(key for key in now if key not in then)]:
            if same_keras or (key in then and key in now):
                below = where if key in ("config", "dask_train_by_value") else f"{where}.{key}"
                yield from _differences(then.get(key), now.get(key), below, same_keras)
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{where}[{place}]", same_keras)
    elif not _same(then, now):
        yield f"{where} was {_name(then)}, and is {_name(now)}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _name(value: Any) -> str:
    """Return a short text for a config: of an object its class, of a function its name."""
    if isinstance(value, dict) and "class_name" in value:
        return str(value["config"] if value["class_name"] == "function" else value["class_name"])
    if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        return f"[{', '.join(map(_name, value))}]"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
