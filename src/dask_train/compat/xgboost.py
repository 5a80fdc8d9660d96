"""Private parts of XGBoost. Made for XGBoost 3."""

from __future__ import annotations

from typing import Any


def is_ranker(estimator: Any) -> bool:
    """Return whether an estimator of XGBoost ranks rows within queries.

    Replaces ``_estimator_type``, by which ``XGBRanker`` says so. Without it rankers train as if all rows were of one
    query.
    """
    return getattr(estimator, "_estimator_type", None) == "ranker"
