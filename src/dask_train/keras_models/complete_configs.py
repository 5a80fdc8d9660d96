"""Configs of Keras' losses and metrics that tell all they were made with.

Some of Keras' own leave settings out of ``get_config``, so that what is made from it computes something else: ``Huber``
its ``delta``, ``CosineSimilarity`` and ``SparseCategoricalCrossentropy`` their ``axis``, all losses their dtype (Keras
3.15.1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import keras

from dask_train.compat.keras.compiled import arguments_of
from dask_train.compat.keras.internals import LossFunctionWrapper, MeanMetricWrapper


@contextmanager
def complete_configs() -> Iterator[None]:
    """While it lasts, the configs of losses and metrics have what Keras leaves out, under the names of arguments."""
    with ExitStack() as undone:
        for cls in _classes(LossFunctionWrapper, MeanMetricWrapper):
            if "get_config" in vars(cls):
                original = vars(cls)["get_config"]
                type.__setattr__(cls, "get_config", _completing(original))
                undone.callback(type.__setattr__, cls, "get_config", original)
        yield


def _completing(original: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    @wraps(original)
    def get_config(self: Any) -> dict[str, Any]:
        config = original(self)
        arguments = inspect.signature(type(self).__init__).parameters
        made_with = dict(arguments_of(self, {}))
        if isinstance(self, keras.Loss) and self.dtype != keras.config.floatx():
            made_with["dtype"] = self.dtype
        missing = {name: value for name, value in made_with.items() if name in arguments and name not in config}
        return {**config, **missing}

    return get_config


def _classes(*roots: type[Any]) -> Iterator[type[Any]]:
    """Yield the classes, and all that Keras has made of them."""
    for root in roots:
        yield root
        subclasses: list[type[Any]] = root.__subclasses__()
        yield from _classes(*(cls for cls in subclasses if cls.__module__.startswith("keras.")))
