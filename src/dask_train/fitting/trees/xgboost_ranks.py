"""What XGBoost does otherwise among ranks than in one process, and what is done about it."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import xgboost

from dask_train.fitting.trees.replaced import replaced_in_thread
from dask_train.role.session import Session

# Scores that XGBoost sums over ranks by parts, so that they are means of what each rank has by itself.
BY_RANK = ("auc", "aucpr")
# Objectives whose leaves are quantiles: XGBoost takes the mean over ranks of what each finds of its own rows. From 3.4
# on their leaves come of sums, as others do.
QUANTILES = ("reg:absoluteerror", "reg:quantileerror")
SUMMED_FROM = (3, 4)
# XGBoost's warning about a parameter that it does not know.
_UNUSED = re.compile(r"Parameters: \{ (.*?) \} are not used", re.DOTALL)
# Filters of warnings are of all threads: what one puts back must not undo what another has put in place.
CHANGES_WARNINGS = threading.Lock()


def check_together(params: Mapping[str, Any], num_ranks: int) -> None:
    """Check that ranks can train one model.

    Raises
    ------
    ValueError
        Each would train on its own rows as if there were no others.
    """
    if num_ranks > 1 and params.get("objective") == "survival:cox":
        raise ValueError(
            f"objective='survival:cox' with {num_ranks} workers: XGBoost compares each row with all that are at risk "
            "by then, of which each worker would know its own alone. Pass workers=1; or train with 'survival:aft', by "
            "dt.train(..., framework='xgboost')."
        )


def tell(params: Mapping[str, Any], metrics: Any, session: Session) -> None:
    """Let the first of several ranks tell what comes out otherwise than in one process.

    Parameters
    ----------
    params
        Of the estimator.
    metrics
        Those that are computed, as the estimator takes them.
    session
        Of the role.
    """
    if session.world_rank != 0 or session.world_size == 1:
        return
    objective, all_metrics = params.get("objective"), metrics if isinstance(metrics, list | tuple) else [metrics]
    averaged = [each for each in all_metrics if isinstance(each, str) and each.partition("@")[0] in BY_RANK]
    if averaged:
        session.notice(
            f"{', '.join(averaged)}: XGBoost takes the mean over workers of what each finds of its own rows. For that "
            "of all rows pass a function, such as eval_metric=sklearn.metrics.roc_auc_score."
        )
    if objective in QUANTILES and tuple(map(int, xgboost.__version__.split(".")[:2])) < SUMMED_FROM:
        session.notice(
            f"objective={objective!r}: XGBoost's leaves are means over workers of the quantiles that each has of its "
            "own rows. Shuffle rows that are sorted, or train with workers=1."
        )
    if params.get("lambdarank_unbiased"):
        session.notice(
            "lambdarank_unbiased=True: each worker finds the bias of positions from its own queries. Shuffle queries "
            "that are sorted, or train with workers=1."
        )


@contextmanager
def unused_told(session: Session) -> Iterator[None]:
    """Let the first rank report parameters that XGBoost does not know, of which it only warns."""
    show = warnings.showwarning

    def report_unused(message: Warning | str, *others: Any, **more: Any) -> None:
        match = _UNUSED.search(str(message))
        if match is not None and session.world_rank == 0:
            session.notice(f"XGBoost does not use the parameters {match[1]}: look for a misspelt name.")
        show(message, *others, **more)

    with ExitStack() as stack:
        with CHANGES_WARNINGS:
            with warnings.catch_warnings():
                pass  # that there were others lets what was shown before be shown again
            stack.enter_context(replaced_in_thread(warnings, showwarning=report_unused))
        yield


def exact(metrics: Any, session: Session) -> Any:
    """Return metrics with a function in place of each, which gets the rows of all ranks."""
    if callable(metrics):
        return _of_all_rows(metrics, session)
    if metrics is None or isinstance(metrics, str):
        return metrics
    return [_of_all_rows(each, session) if callable(each) else each for each in metrics]


def _of_all_rows(metric: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def of_all(y_true: np.ndarray, y_score: np.ndarray, sample_weight: np.ndarray | None = None) -> Any:
        weights = np.ones(len(y_true), np.float32) if sample_weight is None else sample_weight
        # XGBoost gives flat arrays of no rows to a rank that has none of a set with several values a row.
        widths = session.all_reduce([np.array(each[0].size if len(each) else 0) for each in (y_true, y_score)], "max")
        if not len(y_true):
            y_true, y_score = (
                each.reshape((0, int(width)) if width > 1 else 0)
                for each, width in zip((y_true, y_score), widths, strict=True)
            )
        everyones = session.all_gather([y_true, y_score, weights, np.array([sample_weight is not None])])
        if everyones[3].any():
            return metric(everyones[0], everyones[1], sample_weight=everyones[2])
        return metric(everyones[0], everyones[1])

    of_all.__name__ = getattr(metric, "__name__", type(metric).__name__)
    return of_all
