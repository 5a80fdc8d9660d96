"""What LightGBM does otherwise among ranks than in one process, and what is done about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_train.role.session import Session

# Objectives that begin with the mean of the targets. Of others LightGBM itself takes sums over all ranks.
_MEAN = ("regression", "regression_l2", "l2", "mean_squared_error", "mse", "l2_root", "root_mean_squared_error", "rmse")
_LOG = ("poisson", "gamma", "tweedie")
_LOGIT = ("cross_entropy", "xentropy")
_LOG_EXPM1 = ("cross_entropy_lambda", "xentlambda")
# Those whose leaves are medians: LightGBM takes the mean over ranks of what each finds of its own rows.
_MEDIANS = ("regression_l1", "l1", "mean_absolute_error", "mae", "quantile", "mape", "mean_absolute_percentage_error")
# What it takes for its kinds of parallel training of rows that are shared out.
_LEARNERS = ("data", "data_parallel", "voting", "voting_parallel")
# The parameter that says which, by all of its names.
_LEARNER = ("tree_learner", "tree", "tree_type", "tree_learner_type")
_EPSILON = 1e-15


def has_linear_trees(params: Mapping[str, Any]) -> bool:
    """Return whether leaves have linear models, by either of LightGBM's names for that."""
    return bool(params.get("linear_tree") or params.get("linear_trees"))


def check_together(params: Mapping[str, Any], num_ranks: int) -> None:
    """Check that ranks can train one model.

    Raises
    ------
    ValueError
        Each would train a model of its own rows.
    """
    if num_ranks > 1 and has_linear_trees(params):
        raise ValueError(
            f"linear_tree=True with {num_ranks} workers: LightGBM makes linear trees in one process only, so that each "
            "worker would fit its own rows. Leave it out, or pass workers=1."
        )
    learners = [params[name] for name in _LEARNER if name in params]
    if num_ranks > 1 and learners and learners[-1] not in (*_LEARNERS, "serial"):
        raise ValueError(
            f"tree_learner={learners[-1]!r}: rows are shared out among workers, each with all features. Leave it out, "
            "or pass 'data' or 'voting'."
        )


def parallel(params: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """Return the parameters with which ranks train one model; those of one process where a rank is alone.

    Raises
    ------
    ValueError
        Each rank would train a model of its own rows.
    """
    rank_params = dict(params)
    if session.world_size == 1:
        return rank_params
    check_together(rank_params, session.world_size)
    tree_learners = [rank_params.pop(name) for name in _LEARNER if name in rank_params]
    rank_params.update(session.network)
    if tree_learners and tree_learners[-1] != "serial":
        rank_params["tree_learner"] = tree_learners[-1]
    for name in ("min_child_samples", "min_data_in_leaf", "min_data_per_leaf", "min_data", "min_samples_leaf"):
        if name in rank_params and int(rank_params[name]) < 1:
            rank_params[name] = 1  # leaves that LightGBM takes for empty, by its count, would end the run
    _tell(rank_params, session)
    return rank_params


def _tell(params: Mapping[str, Any], session: Session) -> None:
    if session.world_rank:
        return
    if params["objective"] in _MEDIANS:
        session.notice(
            f"objective={params['objective']!r}: LightGBM's leaves are means over workers of the quantiles that each "
            "has of its own rows. Shuffle rows that are sorted, or train with workers=1."
        )
    names = ("monotone_constraints_method", "monotone_constraining_method", "mc_method")
    methods = [params[name] for name in names if params.get(name) not in (None, "basic")]
    if methods:
        session.notice(f"monotone_constraints_method={methods[0]!r}: of several workers LightGBM takes 'basic'.")


def first_score(params: Mapping[str, Any], labels: np.ndarray, weights: np.ndarray | None, session: Session) -> float:
    """Return what all rows begin with, of the mean over all ranks' rows; 0 if that is not ours to find.

    LightGBM begins with the mean over ranks of what each would begin with: of uneven shares another value, and a wild
    one where a logarithm of a rank's mean has no bound.
    """
    objective = params["objective"]
    kinds = ("boosting_type", "boosting", "boost")
    is_forest = any(params.get(name) in ("rf", "random_forest") for name in kinds)
    known = objective in (*_MEAN, "huber", "fair", *_LOG, *_LOGIT, *_LOG_EXPM1)
    if not known or is_forest or params.get("boost_from_average") in (False, 0, "false"):
        return 0.0
    y = np.asarray(labels, np.float32).astype(np.float64)
    if params.get("reg_sqrt") and objective in _MEAN:
        y = np.sign(y) * np.sqrt(np.abs(y))
    w = np.ones(len(y)) if weights is None else np.asarray(weights, np.float32).astype(np.float64)
    total, weight = session.all_reduce(np.array([y @ w, w.sum()]))
    return _link(objective, float(total / weight) if weight else 0.0)


def _link(objective: str, mean: float) -> float:
    if objective in _LOG:
        return math.log(max(mean, _EPSILON))
    if objective in _LOGIT:
        mean = min(max(mean, _EPSILON), 1 - _EPSILON)
        return math.log(mean / (1 - mean))
    if objective in _LOG_EXPM1:
        return math.log(math.expm1(max(mean, _EPSILON)))
    return mean


def add_to_first_tree(booster: Any, score: float) -> None:
    """Let the model's first tree hold what rows began with, as LightGBM does with its own."""
    (tree,) = booster.dump_model(num_iteration=1)["tree_info"]
    for leaf in range(tree["num_leaves"]):
        booster.set_leaf_output(0, leaf, booster.get_leaf_output(0, leaf) + score)
