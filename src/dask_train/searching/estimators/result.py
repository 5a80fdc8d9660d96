"""What a search over a grid returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.cards import Card, CardTable
from dask_train.errors import DaskTrainError
from dask_train.fitting.schemas import note_schema
from dask_train.report.formats import score_text
from dask_train.searching.result import BEST, SearchFound, value_text

if TYPE_CHECKING:
    import pandas as pd

    from dask_train.searching.estimators.grid import GridStudy


class GridResult(SearchFound):
    """Result of a search over a grid: the best estimator, its parameters, and the scores of all candidates.

    Attributes
    ----------
    cv_results_
        As ``GridSearchCV`` has it: a dict of arrays, a row for each candidate. Times of a candidate are those of all
        of its steps, also of those that it shares.
    scorer_names
        The scores.
    num_fits
        Number of fits of steps on folds; each distinct beginning of a pipeline counts once per fold.
    num_splits
        Number of folds.
    refit_s
        Seconds that the best one took on all rows.
    schema : FrameSchema or None
        Columns and categories of the frame that estimators were fitted with. None for arrays.
    """

    def __init__(self, study: GridStudy) -> None:
        self.cv_results_ = study.table
        self.scorer_names, self.num_splits = study.scorer_names, study.num_splits
        self.num_fits, self.refit_s = study.num_fits, study.refit_s
        self.schema = study.schema
        self._refit, self._index = study.refit, study.best_index
        self._estimator = None if study.best is None else study.best[2]

    @property
    def best_index(self) -> int:
        """Return the row of the best candidate.

        Raises
        ------
        DaskTrainError
            No score chooses it: ``refit=False`` with several; or no candidate has that score on each fold.
        """
        if self._index is not None:
            return self._index
        if self._refit is None and len(self.scorer_names) > 1:
            raise DaskTrainError(
                "Which candidate is the best one is not known: there are several scores.",
                change=f"Pass refit= one of {', '.join(self.scorer_names)}.",
            )
        if not self._knows_best:
            raise DaskTrainError(
                "Which candidate is the best one is not known: none has a score on each fold yet.",
                change="Let the search end, or resume it.",
            )
        return int(self.cv_results_[f"rank_test_{self.scorer_names[0]}"].argmin())

    @property
    def best_params(self) -> dict[str, Any]:
        """Return the parameters of the best candidate."""
        return dict(self.cv_results_["params"][self.best_index])

    @property
    def best_value(self) -> float:
        """Return the mean of its scores on the folds."""
        return float(self.cv_results_[f"mean_test_{self._refit or self.scorer_names[0]}"][self.best_index])

    @property
    def history(self) -> dict[str, list[float]]:
        """Return the means of candidates' scores on the folds, in their order, and the best one so far."""
        values = self.cv_results_[f"mean_test_{self._refit or self.scorer_names[0]}"]
        return {"value": values.tolist(), f"{BEST}value": np.fmax.accumulate(values).tolist()}

    _unit = "candidate"

    @property
    def best_estimator(self) -> Any:
        """Return the best candidate, fitted on all rows; :func:`dask_train.predict` knows its schema.

        Raises
        ------
        DaskTrainError
            It was not fitted: ``refit=False``.
        """
        if self._estimator is None:
            raise DaskTrainError(
                "The best candidate was not fitted on all rows.",
                change=(
                    "Let the search end, and pass refit=True."
                    if len(self.scorer_names) == 1
                    else f"Let the search end, and pass refit= one of {', '.join(self.scorer_names)}."
                ),
            )
        note_schema(self._estimator, self.schema)
        return self._estimator

    best_model = best_estimator

    def trials_dataframe(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame, a row for each candidate.

        Returns
        -------
        pandas.DataFrame
            With the columns of ``cv_results_``.
        """
        import pandas as pd

        return pd.DataFrame(self.cv_results_)

    def _card(self) -> Card:
        params, scores = self.cv_results_["params"], [self._refit or self.scorer_names[0]]
        scores += [name for name in self.scorer_names if name not in scores]
        order = self.cv_results_[f"rank_test_{scores[0]}"].argsort(kind="stable")
        names = list(dict.fromkeys(name for each in params for name in each))
        rows = [
            (
                *(score_text(self.cv_results_[f"mean_test_{score}"][number]) for score in scores),
                *(value_text(params[number].get(name, "")) for name in names),
            )
            for number in order
        ]
        facts = [("candidates", f"{len(params):,}"), ("folds", f"{self.num_splits}"), ("fits", f"{self.num_fits:,}")]
        if self._knows_best:
            facts += [("best value", score_text(self.best_value))]
            facts += [(name, value_text(value)) for name, value in self.best_params.items()]
        table = CardTable(columns=(*scores, *names), rows=rows, title="all candidates")
        return Card(kind="GridResult", facts=facts, tables=[table])

    def __repr__(self) -> str:
        num = len(self.cv_results_["params"])
        best = f"; best value {score_text(self.best_value)}" if self._knows_best else ""
        return f"<GridResult: {num} candidates on {self.num_splits} folds, {self.num_fits} fits of steps{best}>"

    @property
    def _knows_best(self) -> bool:
        if self._index is not None or len(self.scorer_names) > 1:
            return self._index is not None
        return bool(np.isfinite(self.cv_results_[f"mean_test_{self.scorer_names[0]}"]).any())
