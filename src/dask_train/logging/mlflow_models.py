"""A trained model in MLflow's own format: with its flavour, its signature, and an input example."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from dask_train.compat.mlflow import add_example

# By the package whose class a model is of, in this order: estimators of XGBoost and LightGBM are of scikit-learn as
# well. The flavour, and what it needs to be opened.
_FLAVOURS = {
    "xgboost": ("xgboost", ("xgboost", "xgboost-cpu", "scikit-learn")),
    "lightgbm": ("lightgbm", ("lightgbm", "scikit-learn")),
    "sklearn": ("sklearn", ("scikit-learn",)),
    # Models of Keras on torch are modules of torch, too.
    "keras": ("keras", ("keras", "tensorflow", "tensorflow-cpu", "torch", "jax")),
    "torch": ("pytorch", ("torch",)),
}

_FORMAT = "serialization_format"


def has_flavour(model: Any) -> bool:
    """Return whether a model is of a kind that is written here; of others there is the file of the run."""
    return _package_of(model) is not None


def write_model(model: Any, folder: Path, example: Any = None) -> None:
    """Write a model as ``mlflow.pyfunc.load_model`` opens it, and its flavour's own ``load_model``.

    Parameters
    ----------
    model
        An estimator of XGBoost, LightGBM or scikit-learn, a Keras model, or a module of torch.
    folder
        Made by this.
    example
        A row as the model takes it, of zeros. Default: one that is made as the model says, where it does.

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
    formats = _formats(package) if _FORMAT in signature(save).parameters else {}
    # Requirements are named: else MLflow opens the model in another process to find them, which takes long.
    row = _signature(package, model, example)
    later = row.pop("input_example", None) if package == "keras" else None
    save(model, str(folder), pip_requirements=_installed(needs), **row, **formats)
    if later is not None:  # mlflow.keras writes an example before it makes the folder
        add_example(folder, later)


def _formats(package: str) -> dict[str, str]:
    """Return the format for files of models that have several."""
    if package == "torch":
        return {_FORMAT: "pickle"}  # the other one is a graph, which not every module has
    # MLflow 3 writes estimators with skops, which mlflow-skinny does not bring.
    by_pickle = package in ("lightgbm", "sklearn") and find_spec("skops") is None
    return {_FORMAT: "cloudpickle"} if by_pickle else {}


def _package_of(model: Any) -> str | None:
    packages = [each.__module__.partition(".")[0] for each in type(model).__mro__]
    return next((each for each in _FLAVOURS if each in packages), None)


def _installed(packages: tuple[str, ...]) -> list[str]:
    requirements = []
    for package in packages:
        try:
            requirements.append(f"{package}=={version(package).partition('+')[0]}")  # such as +cpu, which no index has
        except PackageNotFoundError:
            continue
    return requirements


def _signature(package: str, model: Any, example: Any) -> dict[str, Any]:
    """Return the arguments ``signature`` and ``input_example``, or none of them."""
    from mlflow.models import infer_signature

    try:
        row, predicted = _ROWS.get(package, _of_estimator)(model, example)
        return {} if row is None else {"signature": infer_signature(row, predicted), "input_example": row}
    except Exception:  # a row of zeros is not of the columns' kinds, such as of categories
        return {}


def _of_estimator(model: Any, _: Any) -> tuple[Any, Any]:
    example = _estimator_row(model)
    return example, model.predict(example)


def _of_keras(model: Any, _: Any) -> tuple[Any, Any]:
    """Return a row by the shapes of the model's inputs, and what it makes of it; several inputs by their names."""
    import keras

    rows = {each.name: np.zeros((1, *each.shape[1:]), each.dtype) for each in model.inputs}
    example: Any = rows if len(rows) > 1 else next(iter(rows.values()))
    # Called, not by its method `predict`, which would compile what the user's model keeps.
    outputs = model(example, training=False)
    named = (
        outputs
        if isinstance(outputs, dict)
        else {f"output_{n}": each for n, each in enumerate(keras.tree.flatten(outputs))}
    )
    arrays = {str(name): keras.ops.convert_to_numpy(each) for name, each in named.items()}
    return example, arrays if len(arrays) > 1 else next(iter(arrays.values()))


def _of_module(model: Any, example: Any) -> tuple[Any, Any]:
    """Return the row, and what a copy makes of it, since the module itself may be in training mode."""
    import torch

    if example is None:
        return None, None
    rows = torch.from_numpy(np.array(example, np.float32))  # as MLflow opens frames
    with torch.no_grad():
        return example, deepcopy(model).cpu().eval()(rows).numpy()


_ROWS = {"keras": _of_keras, "torch": _of_module}


def _estimator_row(model: Any) -> Any:
    names = getattr(model, "feature_names_in_", None)
    row = np.zeros((1, model.n_features_in_))
    if names is None:
        return row
    import pandas as pd

    return pd.DataFrame(row, columns=[str(name) for name in names])
