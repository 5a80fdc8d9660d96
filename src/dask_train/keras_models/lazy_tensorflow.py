"""Keras on torch or JAX without TensorFlow, in processes whose Keras is the library's own affair."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from dask_train.compat.keras.internals import serialization_lib


class _IfImported:
    """In place of a module that Keras imports to learn whether it is there: it is where something has imported it."""

    def __init__(self, lazy: Any) -> None:
        self._lazy = lazy

    @property
    def available(self) -> bool:
        return "tensorflow" in sys.modules and bool(self._lazy.available)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lazy, name)


def spare_tensorflow() -> None:
    """Let Keras serialize in this process without importing TensorFlow, unless something else has imported it.

    On every backend ``keras.saving.serialize_keras_object`` looks whether it is given a shape or a dtype of TensorFlow,
    and imports TensorFlow for that, which takes seconds of each process. There are none if it has not been imported.
    A Keras that looks in another way is left as it is.
    """
    module = getattr(serialization_lib, "tf", None)
    if module is not None and not isinstance(module, (ModuleType, _IfImported)):
        serialization_lib.tf = _IfImported(module)
