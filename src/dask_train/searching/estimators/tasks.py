"""What is fitted for a trial of Optuna: the estimator that the user's ``build`` returns, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dask_train.fitting.model_kind import TrialSpec
from dask_train.searching.estimators.folds import Folds
from dask_train.searching.estimators.scoring import scoring_of
from dask_train.searching.estimators.trial import EstimatorTask, check_rounds


@dataclass(frozen=True, kw_only=True)
class EstimatorTasks:
    """What is fitted for each trial.

    Attributes
    ----------
    build, scoring
        The user's.
    folds
        None if there is a data set for validation.
    has_weights, weighs_scores
        Whether rows that are fitted, and those that are scored, have weights.
    """

    build: Callable[[Any], Any]
    scoring: Any
    folds: Folds | None
    has_weights: bool
    weighs_scores: bool

    def task(self, trial: Any) -> TrialSpec:
        """Return what is to be fitted for a trial of Optuna."""
        built = self.build(trial)
        arguments: Mapping[str, Any] = {}
        if isinstance(built, tuple):
            if len(built) != 2 or not isinstance(built[1], Mapping) or set(built[1]) - {"rounds"}:
                raise TypeError(
                    f"build returned a tuple, {built!r}; it is an estimator and {{'rounds': n}}, or an estimator alone."
                )
            built, arguments = built
        if not hasattr(built, "get_params") or not hasattr(built, "fit"):
            raise TypeError(
                f"build returned a {type(built).__name__}, and scoring= and cv= are of estimators. Put a Keras model "
                "into dask_train.sklearn.KerasClassifier, or leave scoring and cv out."
            )
        rounds = arguments.get("rounds", 1)
        check_rounds(built, rounds, has_weights=self.has_weights)
        task = EstimatorTask(
            estimator=built,
            scoring=scoring_of(built, self.scoring, has_weights=self.weighs_scores),
            splits=None if self.folds is None else self.folds.of(built),
            rounds=rounds,
        )
        return TrialSpec(work=task, model=lambda fitted: fitted)
