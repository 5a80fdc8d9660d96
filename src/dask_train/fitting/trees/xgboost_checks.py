"""What XGBoost says of an estimator's parameters and labels, asked in the client before anything is started."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import numpy as np
import pandas as pd
import xgboost


def check_params(params: Mapping[str, Any], num_features: int, names: Sequence[str] | None = None) -> None:
    """Let XGBoost configure a booster, which looks at the values of all parameters.

    Parameters
    ----------
    params
        Those of the estimator: ``get_xgb_params()``.
    num_features
        Features of a row.
    names
        Of the features, by which constraints may call them; None if they have none.

    Raises
    ------
    ValueError
        A constraint names no feature.
    xgboost.core.XGBoostError
        A value is invalid, or names an objective or metric that XGBoost does not have; it is a ValueError.
    """
    booster_params = {name: value for name, value in params.items() if name != "device" and not callable(value)}
    metrics = booster_params.get("eval_metric")
    if isinstance(metrics, list | tuple):
        booster_params["eval_metric"] = [each for each in metrics if not callable(each)]
    if str(booster_params.get("objective")).startswith("multi:"):
        booster_params.setdefault("num_class", 2)  # classifiers find it in the labels
    booster_params["verbosity"] = 0  # a booster sets it for the whole process: the context sets it back
    with xgboost.config_context(), warnings.catch_warnings():  # a worker warns of parameters, as a notice
        warnings.simplefilter("ignore")
        no_rows = xgboost.DMatrix(np.zeros((1, num_features)), label=[0.0], feature_names=names and list(names))
        xgboost.Booster(booster_params, [no_rows]).save_config()


def check_labels(model: Any, x: Any, y: Any, label: Any) -> None:
    """Check that the classes of labels are 0, 1 and so on, where labels are in this process; else workers find out.

    Parameters
    ----------
    model
        The estimator.
    x, y, label
        Rows as the user has passed them: ``y`` has the labels, or the column ``label`` of ``x``.

    Raises
    ------
    ValueError
        They are not.
    """
    if y is None and isinstance(label, str) and not dask.is_dask_collection(x):
        y = x[label] if label in getattr(x, "columns", ()) else None
    if not isinstance(model, xgboost.XGBClassifier) or not isinstance(y, np.ndarray | pd.Series):
        return
    labels = np.asarray(y)
    if labels.dtype.kind not in "biuf" or labels.size != len(labels) or np.isnan(labels).any():
        return  # text and missing labels are reported elsewhere; several targets are indicators
    classes = np.unique(labels)
    if not np.array_equal(classes, np.arange(len(classes))):
        listing = ", ".join(map(str, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")
        raise ValueError(
            f"The labels are {listing}, and XGBoost numbers classes 0, 1 and so on. Number them anew, such as with "
            "y_new = np.searchsorted(classes, y), or use LightGBM, which takes labels as they are."
        )
