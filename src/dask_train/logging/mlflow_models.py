"""A trained model in MLflow's own format: with its flavour, its signature, and an input example."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

# By the package whose class a model is of, in this order: estimators of XGBoost and LightGBM are of scikit-learn as
# well. The flavour, and what it needs to be opened.
_FLAVOURS = {
    "xgboost": ("xgboost", ("xgboost", "xgboost-cpu", "scikit-learn")),
    "lightgbm": ("lightgbm", ("lightgbm", "scikit-learn")),
    "sklearn": ("sklearn", ("scikit-learn",)),
}

_FORMAT = "serialization_format"


def has_flavour(model: Any) -> bool:
    """Return whether a model is of a kind that is written here; of others there is the file of the run."""
    return _package_of(model) is not None


def write_model(model: Any, folder: Path) -> None:
    """Write a model as ``mlflow.pyfunc.load_model`` opens it, and its flavour's own ``load_model``.

    Parameters
    ----------
    model
        An estimator of XGBoost, LightGBM or scikit-learn.
    folder
        Made by this.

    Raises
    ------
    ValueError
        It is a model of another kind.
    Exception
        MLflow can't save it.

    Notes
    -----
    The input example is one row of zeros. Where such a row can't be predicted there is no example, and no signature.
    """
    package = _package_of(model)
    if package is None:
        raise ValueError(f"MLflow has no flavour for {type(model).__name__}.")
    flavour, needs = _FLAVOURS[package]
    save = import_module(f"mlflow.{flavour}").save_model
    # MLflow 3 writes estimators with skops, which mlflow-skinny does not bring.
    by_pickle = package in ("lightgbm", "sklearn") and find_spec("skops") is None
    more = {_FORMAT: "cloudpickle"} if by_pickle and _FORMAT in signature(save).parameters else {}
    # Requirements are named: else MLflow opens the model in another process to find them, which takes long.
    save(model, str(folder), pip_requirements=_installed(needs), **_signature(model), **more)


def _package_of(model: Any) -> str | None:
    packages = [each.__module__.partition(".")[0] for each in type(model).__mro__]
    return next((each for each in _FLAVOURS if each in packages), None)


def _installed(packages: tuple[str, ...]) -> list[str]:
    found = []
    for package in packages:
        try:
            found.append(f"{package}=={version(package)}")
        except PackageNotFoundError:
            continue
    return found


def _signature(model: Any) -> dict[str, Any]:
    """Return the arguments ``signature`` and ``input_example``, or none of them."""
    from mlflow.models import infer_signature

    try:
        example = _estimator_row(model)
        predicted = model.predict(example)
    except Exception:  # a row of zeros is not of the columns' kinds, such as of categories
        return {}
    return {"signature": infer_signature(example, predicted), "input_example": example}


def _estimator_row(model: Any) -> Any:
    names = getattr(model, "feature_names_in_", None)
    row = np.zeros((1, model.n_features_in_))
    if names is None:
        return row
    import pandas as pd

    return pd.DataFrame(row, columns=[str(name) for name in names])
