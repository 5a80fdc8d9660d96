"""What a fit of boosted trees returns; the user's estimator takes over what was trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.ledger import Ledger
from dask_train.driver.result import Result, RunAccount
from dask_train.fitting.result import FitResult, result_of, warn_not_fitted
from dask_train.fitting.schemas import note_schema
from dask_train.fitting.trees.callbacks import take_changes
from dask_train.fitting.trees.task import EvalSet
from dask_train.report.account import MetricCurves
from dask_train.trainers.common.outcome import Outcome


@dataclass(frozen=True, kw_only=True, repr=False)
class TreesResult(FitResult):
    """What ``fit`` returns for boosted trees: a :class:`~dask_train.FitResult` whose epochs are rounds.

    Attributes
    ----------
    model
        The fitted estimator, the very object that was passed.
    history
        Scores of the rows that were passed to be scored, each a list of one value a round, by their names in the run:
        ``"val_logloss"`` of one validation set, ``"validation_1_logloss"`` of the second of several, ``"logloss"`` of
        the rows that were trained on.
    epoch
        The numbers of the rounds, from 0.
    best_epoch
        The round with the best score, where early stopping looked for it; else None.
    eval_sets
        Whose scores those are in ``history`` that begin with a prefix, such as ``"validation_1"`` of
        ``"validation_1_"``; those that begin with none are of the rows that were trained on.
    schema
        What the columns of the frame are that it was fitted with; None of arrays.
    all_reduce_s, waiting_s
        Not a number: the library sums in native code.
    scores, ledger, attempts, stop_reason, run_id, notices
        As in :class:`~dask_train.Result`; the ledger is of the rows that were trained on, once each.
    """

    eval_sets: Mapping[str, str] = field(default_factory=dict)
    all_reduce_s: float = math.nan
    waiting_s: float = math.nan

    def _model_name(self) -> str:
        return type(self.model).__name__

    def _save(self, folder: Path) -> Iterator[Path]:
        """Write the ledger, the booster in its library's own format, and the page."""
        yield from RunAccount._save(self, folder)
        if self.epoch:
            is_xgboost = hasattr(self.model, "save_model")
            path = folder / ("model.ubj" if is_xgboost else "model.txt")
            (self.model if is_xgboost else self.model.booster_).save_model(path)
            yield path
            yield from self._page(folder)

    def _metrics(self) -> MetricCurves:
        return MetricCurves(self.history, self.epoch, "round", {"val_": "validation", **self.eval_sets})

    def _values(self) -> list[tuple[str, str]]:
        model, (_, rounds), *others = super()._values()
        others = [("best round" if name == "best epoch" else name, value) for name, value in others]
        return [model, ("rounds", rounds), *others]


def grown(
    result: Result,
    model: Any,
    callbacks: Sequence[Any] = (),
    evals: Sequence[EvalSet] = (),
    schema: FrameSchema | None = None,
) -> TreesResult:
    """Return the result of a run; where it was ended before its first rank could tell, the estimator stays as it is."""
    outcome: Outcome | None = result.results["worker"][0]
    lines = [line for line in result.ledger.lines if line.role == "worker" and line.dataset == 0]
    rows = {line.rank: line for line in lines}
    ledger = Ledger.of_lines(lines, lambda _: sum(line.trained for line in rows.values()))
    if outcome is None:
        warn_not_fitted(model, result, "round")
        return result_of(TreesResult, result, None, model=model, schema=schema, ledger=ledger)
    take_over(model, outcome.header, callbacks)
    note_schema(model, schema)
    return result_of(
        TreesResult,
        result,
        outcome,
        model=model,
        ledger=ledger,
        best_epoch=_best(outcome.header["estimator"], outcome.header["num_before"]),
        schema=schema,
        eval_sets={each.prefix: "validation" if each.prefix == "val_" else each.name for each in evals if each.prefix},
    )


def take_over(model: Any, trained: Mapping[str, Any], callbacks: Sequence[Any] = ()) -> None:
    """Let the user's estimator be fitted: all that ``fit`` has set, and what callbacks hold.

    LightGBM's booster ends with the best round then, if early stopping has found one, so that what continues from it
    is the same as of LightGBM's own ``fit``. In roles, checkpoints and trials of a search it has all rounds.

    Parameters
    ----------
    model
        The user's.
    trained
        What the first role has returned.
    callbacks
        Those that ``fit`` was passed. Default: those of the estimator, as XGBoost's have them.
    """
    fitted = trained["estimator"]
    if not hasattr(fitted, "save_model"):  # LightGBM's
        booster = fitted.booster_
        booster.model_from_string(booster.model_to_string()).free_dataset()
    params = model.get_params(deep=False)
    for name, value in vars(fitted).items():
        if name not in params:
            setattr(model, name, value)
    if isinstance(getattr(fitted, "objective", None), str):
        model.objective = fitted.objective
    take_changes(callbacks or params.get("callbacks") or (), trained["callbacks"], model)


def _best(estimator: Any, num_before: int) -> int | None:
    """Return the number of the best round of this fit, from 0; None if nothing has looked for it.

    Libraries count from the first round of the model that was continued, whose own best round an estimator keeps.
    """
    try:
        best = estimator.best_iteration if hasattr(type(estimator), "best_iteration") else estimator.best_iteration_ - 1
    except AttributeError:  # it was not looked for
        return None
    return None if best < num_before else int(best) - num_before
