"""Private parts of XGBoost. Made for XGBoost 3."""

from __future__ import annotations

from typing import Any


def is_ranker(estimator: Any) -> bool:
    """Return whether an estimator of XGBoost ranks rows within queries.

    Replaces ``_estimator_type``, by which ``XGBRanker`` says so. Without it rankers train as if all rows were of one
    query.
    """
    return getattr(estimator, "_estimator_type", None) == "ranker"


def count_from(callback: Any, num_rounds: int) -> None:
    """Let a callback count rounds from those of the model that a fit began with, also where the fit resumes later.

    Replaces ``TrainingCheckPoint._start``, which is found before training, as is ``EarlyStopping.starting_round``.
    Without it rounds before a checkpoint count twice in the names of files, and in the best iteration.
    """
    from xgboost.callback import EarlyStopping, TrainingCheckPoint

    if isinstance(callback, EarlyStopping):
        callback.starting_round = num_rounds
    if isinstance(callback, TrainingCheckPoint):
        callback._start = num_rounds
