"""How estimators of a search are scored, and by which score one of them is chosen."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.metrics import check_scoring, get_scorer, get_scorer_names

from dask_train.arguments import nearest
from dask_train.searching.estimators.weights import weighted

METRIC = "score"


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How candidates are scored.

    Attributes
    ----------
    scorers
        By name, as scikit-learn has them.
    of_last_step
        Whether they are of scikit-learn's own, and so need no more than a pipeline's last step; others are given the
        whole pipeline and the rows as they were.
    weighted
        The names of those that are given the weights of rows, where there are some.
    """

    scorers: Mapping[str, Callable[..., float]]
    of_last_step: bool
    weighted: frozenset[str] = field(default=frozenset())

    def __call__(self, model: Any, X: Any, y: Any, weight: Any = None) -> dict[str, float]:
        """Return all scores of a fitted model.

        One of several that fails is NaN, as in ``GridSearchCV``, and reported.
        """
        arguments, scores = (X,) if y is None else (X, y), {}
        for name, scorer in self.scorers.items():
            more = {"sample_weight": weight} if name in self.weighted and weight is not None else {}
            try:
                scores[name] = float(scorer(model, *arguments, **more))
            except Exception as error:
                if len(self.scorers) == 1:
                    raise
                scores[name] = math.nan
                warnings.warn(f"The score {name!r} can't be made: {type(error).__name__}: {error}", stacklevel=2)
        return scores


def scoring_of(estimator: Any, scoring: Any, *, has_weights: bool) -> Scoring:
    """Return how candidates are scored, as ``GridSearchCV`` takes it; names go by scikit-learn's own scorers.

    Raises
    ------
    ValueError
        It is no score, or names none.
    """
    check_names(scoring)
    if scoring is None or isinstance(scoring, str) or callable(scoring):
        scorers = {METRIC: check_scoring(estimator, scoring=scoring)}
        of_last_step = not callable(scoring)
    else:
        if not isinstance(scoring, Mapping):
            scoring = {name: name for name in scoring}
        if not scoring:
            raise ValueError("scoring names no score. Pass the names of some, or leave it out.")
        scorers = {name: get_scorer(each) if isinstance(each, str) else each for name, each in scoring.items()}
        of_last_step = all(isinstance(each, str) for each in scoring.values())
    names = weighted(estimator, scorers) if has_weights else frozenset[str]()
    return Scoring(scorers=scorers, of_last_step=of_last_step, weighted=names)


def check_names(scoring: Any) -> None:
    """Check that scores that go by names are scikit-learn's.

    Raises
    ------
    ValueError
        One is not.
    """
    if scoring is None or callable(scoring):
        return
    several = scoring.values() if isinstance(scoring, Mapping) else [scoring] if isinstance(scoring, str) else scoring
    known = get_scorer_names()
    for name in several:
        if isinstance(name, str) and name not in known:
            raise ValueError(
                f"scoring has {name!r}, which is no score of scikit-learn.{nearest(name, known)} All are in "
                "sklearn.metrics.get_scorer_names()."
            )


def counting(refit: bool | str, names: list[str]) -> str | None:
    """Return the score by which the best candidate is chosen and fitted on all rows; None if none is.

    Raises
    ------
    ValueError
        There are several scores, and it is not one of them.
    """
    if refit is False or (refit is True and len(names) == 1):
        return names[0] if refit else None
    if not isinstance(refit, str) or refit not in names:
        raise ValueError(f"refit={refit!r}: of several scores, name the one that counts: {', '.join(names)}; or False.")
    return refit
