"""Private parts of Keras' layers, models, variables and feature spaces."""

from __future__ import annotations

from typing import Any

# Where a layer keeps all layers, variables and seed generators that it has made, in the order in which they came.
LISTS_OF_LAYERS = ("_layers", "_trainable_variables", "_non_trainable_variables", "_seed_generators")

_FEATURE_NAMES = ("_preprocessed_features_names", "_crossed_features_names")


def flatten_layers(model: Any, *, include_self: bool = True) -> list[Any]:
    """Return a model and all layers in it, at any depth, in the order of their making.

    Replaces ``Layer._flatten_layers``; ``Model.layers`` has the outermost ones only. Without it settings, weights and
    statistics of inner layers are not seen.
    """
    return list(model._flatten_layers(include_self=include_self))


def inner_layers(layer: Any) -> list[Any]:
    """Return the list itself in which a layer keeps the layers that it holds.

    Replaces ``Layer._layers``. Without it models that are made again have their weights in another order.
    """
    layers: list[Any] = layer._layers
    return layers


def own_trainable(layer: Any) -> list[Any]:
    """Return the variables that a layer has made to be trained, without those of inner layers.

    Replaces ``Layer._trainable_variables``; the public list has those of inner layers, too, and none once it is frozen.
    """
    variables: list[Any] = layer._trainable_variables
    return variables


def own_non_trainable(layer: Any) -> list[Any]:
    """Return the variables that a layer has made not to be trained, such as moving averages, without inner layers'.

    Replaces ``Layer._non_trainable_variables``; the public list has frozen weights, too, which are no statistics.
    """
    variables: list[Any] = layer._non_trainable_variables
    return variables


def own_variables_by_kind(layer: Any) -> list[list[Any]]:
    """Return the lists themselves of a layer's own trainable variables, other variables and seed generators.

    Replaces these private lists. Without them models that are made again have their weights in another order.
    """
    return [getattr(layer, name) for name in LISTS_OF_LAYERS[1:]]


def metric_variables(metric: Any) -> list[Any]:
    """Return the variables that a metric has made itself, without those of inner metrics.

    Replaces ``Metric._variables``. Without it a custom metric takes inner metrics' counts for its own.
    """
    variables: list[Any] = metric._variables
    return variables


def is_itself_trainable(layer: Any) -> bool:
    """Return what a layer itself was set to; ``Layer.trainable`` is false within a frozen one as well.

    Replaces ``Layer._trainable``. Without it inner layers stay frozen when their outer one is thawed.
    """
    return bool(layer._trainable)


def set_identity(layer: Any, *, name: str, path: str, trainable: bool) -> None:
    """Give a layer its name, path and whether it is trained, past the setters, which reach into inner layers.

    Replaces ``Layer._path`` and ``Layer._trainable``. Without it layers that are made again have other names.
    """
    layer.__dict__.update(name=name, _path=path, _trainable=trainable)


def unlock(layer: Any) -> None:
    """Let a layer make variables and layers after it was built.

    Replaces ``Layer._tracker``. Without it layers that grew after they were built can't be made again.
    """
    layer._tracker.unlock()


def forget_losses(layer: Any) -> None:
    """Let a layer forget which losses it has added, which Keras knows by their ``id()``.

    Replaces ``Layer._loss_ids``. Without it a loss of another layer at the same address is dropped or counted twice.
    """
    layer._loss_ids.clear()


def has_added_losses(layer: Any) -> bool:
    """Return whether a layer itself has added losses when it was last called, also within a graph.

    Replaces ``Layer._losses``; the public list has those of inner layers and of weights, too. Without it each custom
    layer is taken for one that adds losses.
    """
    return bool(layer._losses)


def has_init_arguments(layer: Any) -> bool:
    """Return whether Keras has noted what a layer was made with.

    Replaces ``Layer._auto_config``. Without it layers with attributes that can't be sent can't travel.
    """
    return layer._auto_config is not None


def named_inputs(model: Any) -> Any:
    """Return the inputs of a functional model as they were passed, in a dict for instance; None of other models.

    Replaces ``Functional._inputs_struct``; ``Model.inputs`` is flat. Without it columns can't be matched by name.
    """
    return getattr(model, "_inputs_struct", None)


def takes_training(model: Any) -> bool:
    """Return whether a model's ``call`` takes ``training``.

    Replaces ``Layer._call_has_training_arg``. Without it a model is called otherwise than in Keras' own steps.
    """
    return bool(model._call_has_training_arg)


def set_variable_names(variable: Any, name: str, path: str) -> None:
    """Give a variable its name and path.

    Replaces ``Variable._name`` and ``Variable._path``, which have no setters. Without it variables of models that are
    made again go by other names in checkpoints and optimizers.
    """
    variable._name, variable._path = name, path


def is_autocast(variable: Any) -> bool:
    """Return whether a variable is read in the dtype of computation, under mixed precision.

    Replaces ``Variable._autocast``. Without it layers that are made again compute in another precision.
    """
    return bool(variable._autocast)


def is_adapted(space: Any) -> bool:
    """Return whether a ``FeatureSpace`` has made layers of data that it has seen.

    Replaces ``FeatureSpace._sublayers_built``. Without it an adapted one can't travel.
    """
    return bool(space._sublayers_built)


def feature_names(space: Any) -> dict[str, list[str]]:
    """Return the names of features that a ``FeatureSpace`` has made of data; see :func:`set_adapted`."""
    return {name: list(getattr(space, name)) for name in _FEATURE_NAMES}


def set_adapted(space: Any, names: dict[str, list[str]]) -> None:
    """Let a ``FeatureSpace`` take the layers that it was given as those that it has made of data.

    Replaces its private names and flags. Without it an adapted one can't travel.
    """
    for name in _FEATURE_NAMES:
        setattr(space, name, names[name])
    space._is_adapted = space._sublayers_built = True
