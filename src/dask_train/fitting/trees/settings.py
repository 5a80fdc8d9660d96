"""Settings with which estimators of boosted trees are fitted; values that import no library of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dask

from dask_train.arguments import converted_by
from dask_train.collections.delayed import are_parts
from dask_train.fitting.settings import FitSettings
from dask_train.report.fit_progress import EpochLines, RoundsDisplay

# Of an estimator that names no number, in both libraries.
ROUNDS = 100


def _as_pairs(eval_set: Any) -> list[tuple[Any, Any]] | None:
    """Return the sets that are scored as a list; a tuple that is ``(X, y)`` itself, as LightGBM takes it, is one set.

    Raises
    ------
    ValueError
        One is no pair.
    """
    if eval_set is None:
        return None
    if isinstance(eval_set, tuple) and len(eval_set) == 2 and not _is_pair(eval_set[0]):
        eval_set = [eval_set]
    is_data = hasattr(eval_set, "shape") or dask.is_dask_collection(eval_set) or are_parts(eval_set)
    if is_data or isinstance(eval_set, str) or not isinstance(eval_set, Iterable):
        raise ValueError(
            f"eval_set is a {type(eval_set).__name__}; it is a list with features and targets of each set that is "
            "scored. Pass eval_set=[(X, y)]."
        )
    pairs = list(eval_set)
    for number, each in enumerate(pairs):
        if not _is_pair(each):
            size = f" with {len(each)} elements" if isinstance(each, tuple | list) else ""
            raise ValueError(
                f"eval_set[{number}] is a {type(each).__name__}{size}, and each set that is scored is a pair, "
                "(X, y). Pass eval_set=[(X, y)]; weights go to sample_weight_eval_set of XGBoost, or to "
                "eval_sample_weight of LightGBM."
            )
    return pairs


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and not are_parts(value)


@dataclass(frozen=True, kw_only=True, eq=False)
class TreesSettings(FitSettings):
    """Settings of a fit, of either library.

    Attributes
    ----------
    features, label
        Columns of a frame, in place of ``y``; weights, margins and ``qid`` are names then, too. A list of labels is
        of several targets, which XGBoost takes.
    qid
        For rankers, the number of each row's query, in any order. A query whose rows lie in several partitions is
        brought together on one worker: sort by it where there are many rows.
    validation_data, eval_set, eval_qid
        Rows that are scored after each round: ``(X, y)`` or ``(X, y, sample_weight)``, or a frame like ``x``; or what
        the library takes. With ``qid``, ``eval_qid`` has the numbers of each set.
    verbose, workers
        As in :func:`dask_train.fit`; 2 writes a line for each round, and 0 workers grow trees in this process.
    """

    features: str | Sequence[str] | None = None
    label: str | Sequence[str] | None = None
    qid: Any = None
    eval_set: Sequence[tuple[Any, Any]] | None = converted_by(_as_pairs, None)
    eval_qid: Sequence[Any] | None = None

    @property
    def validates(self) -> bool:
        """Return whether rows are scored."""
        return super().validates or bool(self.eval_set)

    def display(self, progress: bool | None, *, rounds: int, **settings: Any) -> RoundsDisplay | EpochLines:
        """Return what shows a run: with ``verbose=2`` a line for each round."""
        if self.verbose == 2 and progress:
            return EpochLines(epochs=None)
        return RoundsDisplay(progress, rounds=rounds, **settings)


@dataclass(frozen=True, kw_only=True, eq=False)
class XGBoostSettings(TreesSettings):
    """Settings of a fit of an estimator of XGBoost, under the names that its own ``fit`` has for them.

    Attributes
    ----------
    base_margin, sample_weight_eval_set, base_margin_eval_set
        Margins of rows; weights and margins of the sets that are scored. An element of ``eval_set`` that is ``(x, y)``
        itself scores the rows that are trained on.
    xgb_model
        A booster, or a fitted estimator, to continue.
    """

    base_margin: Any = None
    sample_weight_eval_set: Sequence[Any] | None = None
    base_margin_eval_set: Sequence[Any] | None = None
    xgb_model: Any = None


@dataclass(frozen=True, kw_only=True, eq=False)
class LightGBMSettings(TreesSettings):
    """Settings of a fit of an estimator of LightGBM, under the names that its own ``fit`` has for them.

    Attributes
    ----------
    init_score, eval_sample_weight, eval_init_score
        Margins of rows; weights and margins of the sets that are scored.
    eval_names
        Names of these sets. Default: ``valid_0`` and so on.
    eval_metric, eval_at, categorical_feature, callbacks, init_model
        As of the estimator's own ``fit``. Callbacks run in every worker, with the same scores; those that were passed
        hold in the end what those of the first worker hold.
    """

    init_score: Any = None
    eval_names: Sequence[str] | None = None
    eval_sample_weight: Sequence[Any] | None = None
    eval_init_score: Sequence[Any] | None = None
    eval_metric: Any = None
    eval_at: Sequence[int] | None = None
    categorical_feature: Any = "auto"
    callbacks: Sequence[Any] | None = None
    init_model: Any = None
