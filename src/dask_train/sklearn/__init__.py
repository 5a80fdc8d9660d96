"""Estimators for scikit-learn's world: Keras models over Dask collections, and estimators that learn by batches.

scikit-learn is an optional extra: ``pip install '.[linear]'`` in a clone. It and Keras are imported when a name is
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dask_train.extras import check_installed, install_command

if TYPE_CHECKING:
    from dask_train.sklearn.incremental import Incremental
    from dask_train.sklearn.keras_estimators import KerasClassifier, KerasRegressor
    from dask_train.sklearn.keras_transformer import KerasTransformer

_HOMES = {
    "Incremental": "incremental",
    "KerasClassifier": "keras_estimators",
    "KerasRegressor": "keras_estimators",
    "KerasTransformer": "keras_transformer",
}

__all__ = ["Incremental", "KerasClassifier", "KerasRegressor", "KerasTransformer"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_installed(f"{__name__}.{name}", "sklearn", install_command("linear"))
    if name != "Incremental":
        check_installed(f"{__name__}.{name}", "keras", install_command("tensorflow"))
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
