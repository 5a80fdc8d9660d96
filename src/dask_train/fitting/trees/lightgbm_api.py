"""Boosted trees of LightGBM as ``fit`` and ``search`` take them; this module imports LightGBM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np
from lightgbm.basic import LightGBMError

from dask_train.compat.lightgbm import names_of_parameter
from dask_train.fitting.model_kind import FitCall
from dask_train.fitting.trees.api import TRAINING, GivenRows, Trees, evals_of, is_same
from dask_train.fitting.trees.lightgbm_params import not_in_the_model
from dask_train.fitting.trees.lightgbm_ranks import check_together, has_linear_trees
from dask_train.fitting.trees.settings import LightGBMSettings

# By these names LightGBM is asked to score by no metric of its own.
_NO_METRIC = {"", "none", "na", "null", "custom"}


class LightGBMTrees(Trees):
    """Estimators of LightGBM, which are fitted in place on the Dask cluster that holds the rows.

    These are ``LGBMClassifier``, ``LGBMRegressor`` and ``LGBMRanker``. ``qid`` stands in place of LightGBM's ``group``.
    The first worker scores whole sets, so that scores are those of all rows: it takes a byte or two per cell for that.
    Rows to train on that are scored, too, lie in memory once more. With ``streaming``, Dask computes the rows a group
    at a time, once in all, onto the local disks of the Dask workers, where they stay until their bins are made; these,
    a byte or two per cell, have to fit in memory, as have validation sets, targets and weights. What LightGBM refuses
    is raised as it is, a LightGBMError above all, with the worker's traceback as a note. The rest is as of
    :class:`~dask_train.fitting.trees.xgboost_api.XGBoostTrees`.

    Notes
    -----
    Ranks sum histograms (``tree_learner="data"`` [1]_, or what the estimator is set to). Bins are of a sample of
    ``subsample_for_bin`` rows of all workers, the same on each: where there are not more rows, they are those of one
    process. Trees are nearly so: LightGBM guesses from hessians how many rows of all workers a leaf has, and chooses
    other splits now and then where hessians differ (less often with ``min_child_samples=1``). Leaves of
    ``"l1"``, ``"quantile"`` and ``"mape"`` are means over workers, and ``notices`` says so. ``linear_tree`` is refused
    of several workers.
    ``deterministic`` and ``force_col_wise`` are set unless they are given, so that trees are the same from run
    to run. Of a million rows or more with few features (``num_features * max_bin`` of 32,768 at most) it is
    ``force_row_wise``, which is sooner done, and keeps bins twice.
    What resumes from a checkpoint, with as many workers, grows the trees of what was never stopped. It does not where
    rounds depend on more than the model, as with ``subsample_freq`` or ``colsample_bytree``: LightGBM draws from
    streams of random numbers that a checkpoint does not hold. Then ``notices`` says so, and ``recovery="in_place"`` is
    refused.

    References
    ----------
    .. [1] Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017.
    """

    name = "lightgbm"
    settings = LightGBMSettings
    trial_settings = ("eval_metric", "categorical_feature", "callbacks")

    def given(self, call: FitCall) -> GivenRows:
        """Return the rows, with sets that are called as the user calls them, or ``valid_0`` and so on."""
        settings, names = call.settings, call.settings.eval_names
        others = {"sample_weight": settings.sample_weight, "margin": settings.init_score, "qid": settings.qid}
        rows = (call.x, call.y, others)
        evals = evals_of(settings, settings.eval_sample_weight, settings.eval_init_score, by_name=others)
        own = [TRAINING if is_same(each, rows) else f"valid_{number}" for number, each in enumerate(evals)]
        return GivenRows(rows=rows, evals=evals, names=own if names is None else _checked_names(own, names))

    def first(self, call: FitCall) -> Any:
        """Return the booster of ``init_model``."""
        return getattr(call.settings.init_model, "booster_", call.settings.init_model)

    def options(self, settings: LightGBMSettings) -> dict[str, Any]:
        """Return what LightGBM's own ``fit`` takes besides rows."""
        at = {} if settings.eval_at is None else {"eval_at": tuple(settings.eval_at)}
        return {**super().options(settings), **at}

    def traits(self, call: FitCall) -> list[str]:
        """Return what needs all rows in memory."""
        is_so = {
            "linear_tree": has_linear_trees(call.model.get_params()),
            "scores its rows": TRAINING in self.given(call).names,
        }
        return [trait for trait, is_it in is_so.items() if is_it]

    def check_estimator(self, model: Any, settings: Any, qid: Any) -> None:
        """Check queries, and metrics by their names."""
        _check_ranker(model, qid)
        check_metrics(model.get_params(), settings.eval_metric)

    def not_resumed(self, model: Any) -> str:
        """Return parameters with which LightGBM holds more than its model from round to round."""
        params = model.get_params()
        return ", ".join(not_in_the_model(params))

    def check_together(self, model: Any, settings: Any, workers: int) -> None:  # noqa: ARG002 - as of all kinds
        """Check what LightGBM does in one process alone."""
        check_together(model.get_params(), workers)


def _checked_names(own: Sequence[str], eval_names: Sequence[Any]) -> list[str]:
    """Return what the user calls the sets that are scored; that of the rows to train on has a name of its own.

    Raises
    ------
    ValueError
        There are more or fewer names than sets, or two are the same.
    """
    if len(eval_names) != len(own):
        raise ValueError(f"eval_names has {len(eval_names)} names, and there are {len(own)} sets to score.")
    names = [one if one == TRAINING else str(name) for one, name in zip(own, eval_names, strict=True)]
    if twice := [each for number, each in enumerate(names) if each in names[:number]]:
        raise ValueError(f"eval_names calls two sets {twice[0]!r}, and scores go by name. Name each otherwise.")
    return names


def _check_ranker(model: Any, qid: Any) -> None:
    """Check that queries are given where rows are ranked within them.

    Raises
    ------
    ValueError
        They are not, or where they mean nothing.
    """
    is_ranker = any(kind.__name__ == "LGBMRanker" for kind in type(model).__mro__)
    if is_ranker != (qid is not None):
        kind = type(model).__name__
        raise ValueError(
            f"{kind} ranks rows within queries. Pass qid=, the number of each row's query."
            if is_ranker
            else f"qid is for rankers, and model is a {kind}. Leave it out."
        )


def check_metrics(params: Mapping[str, Any], eval_metric: Any) -> None:
    """Check that LightGBM has all metrics that are named.

    Parameters
    ----------
    params
        Those of the estimator.
    eval_metric
        As its ``fit`` takes it: names and functions, one or a list.

    Raises
    ------
    ValueError
        LightGBM has not, and would leave a metric out of the scores.
    """
    metrics_by_argument = {
        "eval_metric": eval_metric,
        **{name: params.get(name) for name in sorted(names_of_parameter("metric"))},
    }
    for argument, value in metrics_by_argument.items():
        for name in _names(value):
            if name.lower() not in _NO_METRIC and not _is_known(name):
                at = f" Ranks such as {name!r} are set with eval_at=." if "@" in name else ""
                raise ValueError(
                    f"{argument} names {name!r}, which is no metric of LightGBM: it would be left out of the scores."
                    f"{at} Pass one of LightGBM's, such as 'auc' or 'l2', or a function."
                )


def _names(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list | tuple | set) else [value]:
        if isinstance(each, str):
            yield from (name.strip() for name in each.split(","))


def _is_known(name: str) -> bool:
    """Return whether LightGBM scores two rows by it, or says why it can't."""
    quiet = {"verbosity": -1}
    rows = lightgbm.Dataset(np.zeros((2, 1)), label=[0.0, 1.0], group=[2], params=quiet)
    try:
        return bool(lightgbm.Booster({"objective": "none", "metric": name, **quiet}, rows).eval_train())
    except LightGBMError:  # a metric of several classes, or of other labels
        return True


LIGHTGBM = LightGBMTrees()
