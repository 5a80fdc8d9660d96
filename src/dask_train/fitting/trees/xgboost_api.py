"""Boosted trees of XGBoost as ``fit`` and ``search`` take them; this module imports XGBoost."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import numpy as np
import pandas as pd
import xgboost

from dask_train.collections.partition.form import is_name
from dask_train.compat.xgboost import is_ranker
from dask_train.data.columns import Column
from dask_train.fitting.model_kind import FitCall, FitRows
from dask_train.fitting.trees.api import GivenRows, Trees, evals_of
from dask_train.fitting.trees.checks import check_xgboost
from dask_train.fitting.trees.settings import XGBoostSettings
from dask_train.fitting.trees.xgboost_ranks import CHANGES_WARNINGS, check_together

# Values of parameters with which a model that is continued grows the trees that it would have grown.
_RESUMED = (None, False, 0, "default")


class XGBoostTrees(Trees):
    """Estimators of XGBoost, which are fitted in place on the Dask cluster that holds the rows.

    These are ``XGBClassifier``, ``XGBRegressor``, ``XGBRanker``, and the random forests; with ``tree_method="hist"``
    (the default). ``n_jobs`` is the share of the host's cores that each worker has.

    ``x`` and ``y`` are as of the estimator's own ``fit``: Dask or NumPy arrays, or frames and columns of one frame; or
    a data set of :func:`dask_train.get_dataset`, with the targets. Missing values are NaN, or the estimator's
    ``missing``; categories of frames have to be known, and are encoded alike on all workers.

    A row's weight is that of its query, for rankers. ``stop`` looks at scores by their names in ``history``, and
    ``round``; it ends training after a round that is the same for all workers. A checkpoint holds the booster, the
    callbacks and all scores, by default one per minute and the last one. What resumes makes the same trees as what was
    never stopped; ``n_estimators`` may be another one. A log gets the booster in its library's own format. Without
    ``checkpoint`` a lost worker means that all begin again; with ``recovery="in_place"`` they resume from a recent
    round, kept in memory of their Dask workers. With ``streaming``, Dask computes the rows a group at a
    time, once in all, onto the local disks of the Dask workers, where their bins stay for as long as they are trained
    on (``xgboost.ExtMemQuantileDMatrix``); validation sets, targets and weights have to fit in memory. What XGBoost
    refuses is raised as it is, an XGBoostError above all, with the worker's traceback as a note.

    Notes
    -----
    Each worker makes a ``QuantileDMatrix`` of its partitions, one after the other, from shared memory: one or two bytes
    a cell besides the data itself, and never a copy of it. Histograms are summed over workers in float64 [1]_. Which
    splits are looked at comes of a sketch of each feature, merged over workers [2]_: features of no more than
    ``max_bin`` different values have the very splits of one process, others have splits that are as good and not the
    same. With ``subsample`` below 1 each worker draws of its own rows, and with ``lambdarank_pair_method="mean"`` of
    its own queries. From run to run the trees are the same where the partitions lie on the same hosts and workers have
    as many threads.

    A metric that is a function is given the rows of all workers. Of XGBoost's own, ``auc`` and ``aucpr`` are means over
    workers, and so are leaves of ``"reg:absoluteerror"`` and ``"reg:quantileerror"`` before XGBoost 3.4; ``notices``
    says so.

    References
    ----------
    .. [1] Chen, Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016.
    .. [2] Chen, Guestrin, as before, appendix A: weighted quantile sketch.
    """

    name = "xgboost"
    settings = XGBoostSettings

    def given(self, call: FitCall) -> GivenRows:
        """Return the rows, with sets that are called ``validation_0`` and so on."""
        settings = call.settings
        others = {"sample_weight": settings.sample_weight, "margin": settings.base_margin, "qid": settings.qid}
        evals = evals_of(settings, settings.sample_weight_eval_set, settings.base_margin_eval_set, by_name=others)
        names = [f"validation_{number}" for number in range(len(evals))]
        return GivenRows(rows=(call.x, call.y, others), evals=evals, names=names)

    def first(self, call: FitCall) -> Any:
        """Return ``xgb_model``."""
        return call.settings.xgb_model

    def traits(self, call: FitCall) -> list[str]:
        """Return whether rows have queries, and whether a device other than CPUs is asked for."""
        is_so = {"ranker": is_ranker(call.model), "device": call.model.device not in (None, "cpu")}
        return [trait for trait, is_it in is_so.items() if is_it]

    def prepared(self, call: FitCall, rows: FitRows) -> None:
        """Check labels that are in this process, too."""
        check_labels(call.model, call.x, call.y, call.settings.label)
        super().prepared(call, rows)

    def check_estimator(self, model: Any, settings: Any, qid: Any) -> None:  # noqa: ARG002 - of the other library
        """Check what XGBoost does in one process alone."""
        check_xgboost(model, qid)

    def check_params(self, model: Any, features: Column) -> None:
        """Let XGBoost configure a booster."""
        check_params(model.get_xgb_params(), features.row_shape[0], features.names)

    def not_resumed(self, model: Any) -> str:
        """Return parameters with which XGBoost takes up a model in another way than it left it."""
        params = model.get_params()
        names = [name for name in ("process_type", "lambdarank_unbiased") if params.get(name) not in _RESUMED]
        return ", ".join(f"{name}={params[name]!r}" for name in names)

    def check_together(self, model: Any, settings: Any, workers: int) -> None:  # noqa: ARG002 - as before
        """Check objectives and metrics of several workers."""
        check_together(model.get_params(), workers)


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
    with CHANGES_WARNINGS, xgboost.config_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a worker warns of parameters, as a notice
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
    if y is None and label is not None and is_name(label) and not dask.is_dask_collection(x):
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


XGBOOST = XGBoostTrees()
