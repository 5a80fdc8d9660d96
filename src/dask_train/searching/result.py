"""What ``search`` returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from dask_train.cards import Card, CardMixin, CardTable
from dask_train.errors import DaskTrainError
from dask_train.fitting.saved import save_model
from dask_train.fitting.schemas import note_schema
from dask_train.report.account import MetricCurves, figure_of
from dask_train.report.formats import score_text
from dask_train.searching.best_model import whole
from dask_train.searching.optuna_study import ERROR, OptunaStudy

if TYPE_CHECKING:
    import pandas as pd

    from dask_train.collections.schema.frame_schema import FrameSchema


# Before the name of the best value so far.
BEST = "best_"


# Attributes of scikit-learn's searches, and those that results of searches have in their place.
_OF_SCIKIT_LEARN = {
    "best_params_": ("best_params",),
    "best_score_": ("best_value",),
    "best_estimator_": ("best_estimator", "best_model"),
    "best_estimator": ("best_model",),
}


class SearchFound(CardMixin):
    """What any search has found: a best model, which can be saved with its schema."""

    best_model: Any
    schema: FrameSchema | None

    @property
    def model(self) -> Any:
        """Return the best model, as ``result.model`` of ``fit`` is: ``best_model``."""
        return self.best_model

    @property
    def history(self) -> dict[str, list[float]]:
        """Return the values of trials that are complete, or of candidates, in their order, and the best one so far."""
        raise NotImplementedError

    def plot(self) -> Any:
        """Return a ``matplotlib.figure.Figure`` of the values by trial, and of the best one so far.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it. Not bound to any window.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        values = self.history
        unit = self._unit
        return figure_of(MetricCurves(values, range(len(values["value"])), unit, {"": f"{unit}s", BEST: "best so far"}))

    _unit = "trial"

    if not TYPE_CHECKING:  # where it would hide other names that there are not

        def __getattr__(self, name: str) -> Any:
            """Name what stands for attributes of single runs' results, and of searches of scikit-learn."""
            hint = ""
            if name in _OF_SCIKIT_LEARN:
                known = next(each for each in _OF_SCIKIT_LEARN[name] if hasattr(type(self), each))
                hint = f": use {known!r}"
            if name in ("scores", "ledger", "notices", "attempts", "stop_reason", "run_id", "report"):
                hint = ": a search has a run for each trial. See trials_dataframe(), and pass log= to keep their scores"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}.", name=name, obj=self)

    def save(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write the best model with its schema; see :meth:`FitResult.save <dask_train.FitResult.save>`.

        Parameters
        ----------
        path
            A folder or URL; of a Keras model also a file that ends with ``.keras``.
        storage_options
            Keywords for the file system of a URL. Default: none.
        """
        save_model(self.best_model, self.schema, path, storage_options)


class SearchResult(SearchFound):
    """Result of a search: the best model, its parameters, and all trials.

    Attributes
    ----------
    study : optuna.Study
        The study, for all that Optuna does with one: plots, importances of parameters, more trials.
    schema : FrameSchema or None
        What the columns of the frame are that models were fitted with; None of arrays.
    """

    def __init__(self, study: OptunaStudy) -> None:
        self.study = study.study
        self._best, self.schema = study.best, study.schema

    @property
    def trials(self) -> list[Any]:
        """All trials of the study, as ``optuna.trial.FrozenTrial``, also those of earlier calls."""
        trials: list[Any] = self.study.trials
        return trials

    @property
    def history(self) -> dict[str, list[float]]:
        """Return the values of trials that are complete, in their order, and the best one so far."""
        values = [float(trial.value) for trial in self.trials if trial.state.name == "COMPLETE"]
        is_better = max if self.study.direction.name == "MAXIMIZE" else min
        return {"value": values, f"{BEST}value": list(accumulate(values, is_better))}

    @property
    def best_trial(self) -> Any:
        """The trial with the best value, an ``optuna.trial.FrozenTrial``; of equals the one whose model is kept.

        Raises
        ------
        DaskTrainError
            No trial is complete.
        """
        try:
            best = self.study.best_trial
        except ValueError as error:
            raise DaskTrainError(
                f"No trial of study {self.study.study_name!r} is complete.",
                "They failed, were pruned, or were interrupted.",
                "See trials_dataframe() for how each ended.",
            ) from error
        if self._best is not None and self._best[1] == best.value:
            return next(trial for trial in self.study.get_trials(deepcopy=False) if trial.number == self._best[0])
        return best

    @property
    def best_params(self) -> dict[str, Any]:
        """The parameters of the best trial."""
        return dict(self.best_trial.params)

    @property
    def best_value(self) -> float:
        """The value of the best trial: its best score of an epoch."""
        return float(self.best_trial.value)

    @cached_property
    def best_model(self) -> Any:
        """The model of the best trial, compiled, with the weights and the optimizer's state after its best epoch.

        Of a search over estimators the fitted one: with folds, on all rows, for as many rounds as were best.

        Raises
        ------
        DaskTrainError
            An earlier call has trained it, and its model is not kept in the storage; or no trial is complete.
        """
        best = self.best_trial
        if self._best is None or self._best[0] != best.number:
            raise DaskTrainError(
                f"The model of the best trial, {best.number}, is not here.",
                "An earlier call has trained it; a study's storage keeps parameters and scores, not weights.",
                "Save the best model of each call, or train it again: build(optuna.trial.FixedTrial(best_params)).",
            )
        model = whole(self._best[2])
        note_schema(model, self.schema)
        return model

    def trials_dataframe(self, **options: Any) -> pd.DataFrame:
        """All trials as a pandas DataFrame, a row each; as ``optuna.Study.trials_dataframe``, which takes the options.

        The column ``user_attrs_error`` says why a trial failed, ``user_attrs_retry_of`` which lost one it repeats,
        ``user_attrs_epoch`` its best epoch, from 0, and ``user_attrs_seconds`` how long it took.

        Parameters
        ----------
        **options
            As Optuna takes them, such as ``multi_index``.

        Returns
        -------
        pandas.DataFrame
            Also of trials of earlier calls.
        """
        frame: pd.DataFrame = self.study.trials_dataframe(**options)
        return frame

    def _card(self) -> Card:
        trials = self.study.get_trials(deepcopy=False)
        states = [trial.state.name.lower() for trial in trials]
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        facts = [("trials", counts or "none")]
        if "complete" in states:
            best = self.best_trial
            facts += [("best value", score_text(best.value)), ("of trial", f"{best.number}")]
            facts += [(name, value_text(value)) for name, value in best.params.items()]
        names = list(dict.fromkeys(name for trial in trials for name in trial.params))
        rows = [
            (
                f"{trial.number}",
                trial.state.name.lower(),
                "" if trial.value is None else score_text(trial.value),
                *(value_text(trial.params.get(name, "")) for name in names),
                str(trial.user_attrs.get(ERROR, "")),
            )
            for trial in trials
        ]
        best_first = sorted(rows, key=lambda row: row[1] != "complete")
        columns = ("trial", "state", "value", *names, "error")
        tables = [CardTable(columns=columns, rows=best_first, title="all trials")] if rows else []
        named = self.study.study_name
        name = "" if named.startswith("no-name-") else named  # which Optuna calls a study that got no name
        return Card(kind="SearchResult", name=name, facts=facts, tables=tables)


def value_text(value: Any) -> str:
    """Return the value of a parameter as results show it."""
    return score_text(value) if isinstance(value, float) else str(value)
