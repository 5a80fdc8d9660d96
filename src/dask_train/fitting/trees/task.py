"""What the roles of a fit of boosted trees are sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask_train.data.columns import Columns
from dask_train.trainers.common.task import LoopTask


@dataclass(frozen=True, kw_only=True)
class EvalSet:
    """Rows that are scored after each round.

    Attributes
    ----------
    name
        Under which the library keeps their scores.
    prefix
        Of the names of scores in the run.
    dataset
        Under which roles open them; empty for the rows that are trained on.
    columns
        Which column is what.
    """

    name: str
    prefix: str
    dataset: str
    columns: Columns


@dataclass(frozen=True, kw_only=True)
class TreesTask(LoopTask):
    """A fit of an estimator, in rounds: fields of epochs and batches mean nothing.

    Attributes
    ----------
    library
        ``"xgboost"`` or ``"lightgbm"``.
    estimator
        Not fitted; roles change their own copy.
    columns, evals
        Which column of its rows is what, and the rows that are scored.
    start
        A booster to continue, as the estimator's own ``fit`` takes it; or None.
    settings
        More arguments of that ``fit``.
    streamed
        Whether the rows to train on are too many for memory.
    in_process
        Whether the user's process trains, where what callbacks hold need not be pickled.
    """

    library: str
    estimator: Any
    columns: Columns
    evals: tuple[EvalSet, ...] = ()
    start: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    streamed: bool = False
    in_process: bool = False

    def last_scores(self, scores: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
        """Return the scores of the last round by their names in the run.

        Parameters
        ----------
        scores
            As a library keeps them: by data set and metric, a list of one value a round.
        """
        prefixes = {each.name: each.prefix for each in self.evals}
        return {
            prefixes[name] + re.sub(r"\W", "_", metric): float(values[-1])
            for name, by_metric in scores.items()
            for metric, values in by_metric.items()
        }
