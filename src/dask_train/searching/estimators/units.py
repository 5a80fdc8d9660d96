"""What the roles of a search over a grid are sent: candidates on a fold, and the best one on all rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.prefixes import Fold, candidate_of, scored
from dask_train.searching.estimators.rows import RowTable
from dask_train.searching.estimators.scoring import Scoring
from dask_train.searching.estimators.weights import fit
from dask_train.searching.worker import TrialDone, TrialRequest

if TYPE_CHECKING:
    from dask_train.role.session import Session


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Candidates, of which all have the first step in common, on one fold.

    Attributes
    ----------
    fold
        Its number.
    split
        Its rows.
    params
        Of each candidate, by its number.
    """

    estimator: Any = field(repr=False)
    params: Mapping[int, Mapping[str, Any]]
    fold: int
    split: Split
    scoring: Scoring

    def __call__(self, request: TrialRequest, session: Session, tables: Mapping[str, RowTable]) -> TrialDone:  # noqa: ARG002 - of Work
        """Fit and score them."""
        began = time.monotonic()
        candidates = [candidate_of(number, self.estimator, params) for number, params in self.params.items()]
        with warnings.catch_warnings(record=True) as caught_warnings, tables["data"].fold(self.split) as (train, test):
            warnings.simplefilter("always")
            fold = Fold(train.X, train.y, test.X, test.y, train.weight, test.weight)
            parts = scored(candidates, fold, self.scoring)
        return _done(request, parts, began, caught_warnings)


@dataclass(frozen=True, kw_only=True)
class Refit:
    """The best candidate, on all rows."""

    estimator: Any = field(repr=False)
    params: Mapping[str, Any]

    def __call__(self, request: TrialRequest, session: Session, tables: Mapping[str, RowTable]) -> TrialDone:  # noqa: ARG002 - of Work
        """Fit it."""
        began = time.monotonic()
        whole = candidate_of(0, self.estimator, self.params).whole
        rows = tables["data"].all()
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            fit(whole, *rows)
        return _done(request, whole, began, caught_warnings)


def _done(request: TrialRequest, parts: Any, began: float, caught_warnings: list[warnings.WarningMessage]) -> TrialDone:
    seconds = time.monotonic() - began
    return TrialDone(
        number=request.number, value=None, epoch=None, parts=parts, seconds=seconds, warnings=texts_of(caught_warnings)
    )


def texts_of(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return what estimators have warned their user of, each once; what Python itself would not show is left out."""
    hidden = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
    shown = [each for each in caught if not issubclass(each.category, hidden)]
    return list(dict.fromkeys(f"{each.category.__name__}: {each.message}" for each in shown))[:20]
