"""Layers of Keras' that keep a step from being compared with steps of its parts: they are put aside in trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from dask_train.compat.keras.layers import flatten_layers
from dask_train.fitting.roles.by_row import is_of_keras


@contextmanager
def put_aside(model: Any) -> Iterator[bool]:
    """Let layers that draw random numbers, or normalise a batch, do as they do outside training, while it lasts.

    A mean over rows is one with these or without, and that is unknown if masks differ each time, or statistics
    are of a part. Subclasses of ``BatchNormalization`` count, too; custom layers that draw do not.

    Yields
    ------
    bool
        Whether there are any. Then steps are to be compiled anew.
    """
    with ExitStack() as undone:
        for layer in (layers := [layer for layer in flatten_layers(model) if _is_aside(layer)]):
            for name in _RATES:  # recurrent layers draw masks for their cells
                if vars(layer).get(name):
                    undone.callback(vars(layer).__setitem__, name, vars(layer)[name])
                    vars(layer)[name] = 0.0
            vars(layer)["call"] = _outside_training(layer.call)
            undone.callback(vars(layer).pop, "call")
        yield bool(layers)


_RATES = ("dropout", "recurrent_dropout")


def _is_aside(layer: Any) -> bool:
    if isinstance(layer, keras.layers.BatchNormalization):
        return True
    draws = any(isinstance(one, keras.random.SeedGenerator) for one in vars(layer).values())
    # Drawing may be what a custom layer is for, such as a sample of a distribution: it is left as it is.
    return draws and is_of_keras(type(layer))


def _outside_training(call: Callable[..., Any]) -> Callable[..., Any]:
    def outside_training(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **{**kwargs, "training": False})

    return outside_training
