"""Private parts of LightGBM. Made for LightGBM 4.7."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def names_of_parameter(name: str) -> set[str]:
    """Return all names of a parameter.

    Replaces ``_ConfigAliases``. Without it a parameter that goes by another name is set twice.
    """
    from lightgbm.basic import _ConfigAliases

    names: set[str] = _ConfigAliases.get(name)
    return names


def continue_from(rows: Any, predictor: Any) -> None:
    """Let a ``Dataset`` belong to a booster that continues another; LightGBM wants the same of all of them.

    Replaces ``Dataset._predictor``. Without it LightGBM refuses rows that have scores of the earlier trees.
    """
    rows._predictor = predictor


def predictor_of(booster: Any) -> Any:
    """Return what :func:`continue_from` takes, of the booster from which training continues.

    Replaces ``_InnerPredictor``.
    """
    from lightgbm.basic import _InnerPredictor

    return _InnerPredictor.from_booster(booster=booster, pred_parameter={})


def take_over_names(stand_in: Any, rows: Any) -> None:
    """Let the ``Dataset`` that an estimator has made know whether features have names, as that of the rows does.

    Replaces ``_has_non_default_feature_names``. Without it ``feature_names_in_`` of an estimator is wrong.
    """
    stand_in._has_non_default_feature_names = rows._has_non_default_feature_names


@contextmanager
def with_threads(estimator: Any, num_threads: int) -> Iterator[None]:
    """Let an estimator have this number of threads meanwhile.

    Replaces ``_other_params``, where ``set_params`` notes each parameter that it has set. Without it ``n_jobs`` of the
    user's estimator is that of a worker after a fit.
    """
    n_jobs, noted = estimator.n_jobs, dict(estimator._other_params)
    estimator.set_params(n_jobs=num_threads)
    try:
        yield
    finally:
        estimator.n_jobs, estimator._other_params = n_jobs, noted


def forget_class_weight(estimator: Any) -> None:
    """Let an estimator have no weights of classes, which it has counted in rows that stand in for others.

    Replaces ``_class_weight``. Without it they would be counted twice.
    """
    estimator._class_weight = None


def set_best(estimator: Any, num_rounds: int, scores: Any) -> None:
    """Let a fitted estimator predict with that many rounds, as after early stopping.

    Replaces ``_best_iteration`` and ``_best_score``. Without it ``best_iteration_`` and ``best_score_`` are those of
    other rounds than predictions are.
    """
    estimator.booster_.best_iteration = num_rounds
    estimator._best_iteration, estimator._best_score = num_rounds, scores


def continue_stopping(callback: Any, env: Any) -> None:
    """Let ``early_stopping`` compare scores as it was passed, and go on with the best ones that it holds.

    If other scores are computed now than those, it begins anew. Of another callback nothing is changed.

    Replaces ``_EarlyStoppingCallback._init``. Without it ``min_delta`` is that of the call which training began with.
    """
    from lightgbm.callback import _EarlyStoppingCallback

    if not isinstance(callback, _EarlyStoppingCallback):
        return
    progress = {name: getattr(callback, name) for name in ("best_score", "best_iter", "best_score_list")}
    callback.enabled = callback.stopping_rounds > 0
    callback._init(env)
    known = [each[:2] for each in (progress["best_score_list"] or [()])[0]]
    if known == [each[:2] for each in env.evaluation_result_list]:
        vars(callback).update(progress)


def free_network() -> None:
    """Close what boosters of this process have connected.

    Replaces ``LGBM_NetworkFree`` of the C library; ``Booster.free_network`` needs a booster. Without it ports of a run
    that has failed stay open.
    """
    from lightgbm.basic import _LIB

    _LIB.LGBM_NetworkFree()
