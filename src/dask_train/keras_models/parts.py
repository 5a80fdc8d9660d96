"""The parts of a model by keys, which are the same for a copy of it: what refers to a part of one, finds the other's.

A copy has the parts of its original from when it is put together until it is built.
"""

from __future__ import annotations

from typing import Any

import keras

from dask_train.compat.keras.compiled import metrics_passed
from dask_train.compat.keras.layers import flatten_layers, own_variables_by_kind
from dask_train.keras_models import state
from dask_train.keras_models.held import held
from dask_train.keras_models.remaking import is_of_keras


def parts_by_key(model: Any) -> dict[str, Any]:
    """Return a model, its layers, their variables, and its optimizers, losses and metrics, by keys.

    Parameters
    ----------
    model : keras.Model
        Built or not; a key says of how many layers, so that none stands for another one when building adds layers.

    Returns
    -------
    dict
        By keys that hold no names, which Keras numbers anew in each process.
    """
    layers = flatten_layers(model)
    of_all = f"of {len(layers)} layers"
    parts = {f"layer {number} {of_all}": layer for number, layer in enumerate(layers)}
    for number, layer in enumerate(layers):
        for kind, own in enumerate(own_variables_by_kind(layer)):
            parts.update({f"variable {number} {kind} {place} {of_all}": each for place, each in enumerate(own)})
    for optimizer, places in state.held_optimizers(model):
        key = f"optimizer {places[0]} {of_all}"
        parts[key] = optimizer
        parts[f"inner {key}"] = state.innermost(optimizer)
        parts.update({f"variable {place} of {key}": each for place, each in enumerate(optimizer.variables)})
    for where, metric in held(model, lambda value: isinstance(value, keras.Metric)):
        number, name, *_ = where
        # What a script sets on a layer of Keras' own does not travel with it.
        if name in ("_compile_metrics", "_loss_tracker") or not is_of_keras(type(layers[number])):
            parts[f"metric {where} {of_all}"] = metric
    compiled = keras.tree.flatten([model.loss, list(metrics_passed(model).values())] if model.compiled else [])
    for place, each in enumerate(compiled):
        if isinstance(each, keras.losses.Loss | keras.Metric):
            parts[f"compiled {place}"] = each
    # The model itself is the same whatever building adds.
    return {**{key: each for key, each in parts.items() if each is not model}, "model": model}


def trained_within(value: Any, parts: dict[str, Any]) -> Any:
    """Return a layer among ``parts`` that training changes and another model has, too; None if there is none.

    A layer that is frozen is the same in a copy.
    """
    if not isinstance(value, keras.Model):
        return None
    known = {id(each) for each in parts.values()}
    if id(value) in known:
        return None
    return next((layer for layer in flatten_layers(value) if id(layer) in known and _is_changed(layer)), None)


def holds_trained(value: Any, parts: dict[str, Any]) -> bool:
    """Return whether a value is, or has in containers, another model for which :func:`trained_within` finds a layer."""
    if isinstance(value, dict):
        return any(holds_trained(each, parts) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(holds_trained(each, parts) for each in value)
    return trained_within(value, parts) is not None


def _is_changed(layer: Any) -> bool:
    """Return whether training changes what a layer has itself: not if it is frozen, or adapts before."""
    if not layer.trainable:
        return False
    trainable, others, _ = own_variables_by_kind(layer)
    return not layer.built or bool(trainable) or (bool(others) and not hasattr(layer, "adapt"))
