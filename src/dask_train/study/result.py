"""What ``search`` returns."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from dask_train.errors import DaskTrainError
from dask_train.study.trials import Trials

if TYPE_CHECKING:
    import pandas as pd


class SearchResult:
    """What a search has found.

    Attributes
    ----------
    study : optuna.Study
        The study, for all that Optuna does with one: plots, importances of parameters, more trials.
    """

    def __init__(self, trials: Trials) -> None:
        self.study = trials.study
        self._best = trials.best

    @property
    def trials(self) -> list[Any]:
        """All trials of the study, as ``optuna.trial.FrozenTrial``, also those of earlier calls."""
        found: list[Any] = self.study.trials
        return found

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
        """Its parameters."""
        return dict(self.best_trial.params)

    @property
    def best_value(self) -> float:
        """Its value: the best score of an epoch."""
        return float(self.best_trial.value)

    @cached_property
    def best_model(self) -> Any:
        """Its model, compiled, with the weights and the optimizer's state after its best epoch.

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
        from dask_train.frameworks.keras.serialization import parts_to_model

        return parts_to_model(*self._best[2])

    def trials_dataframe(self, **options: Any) -> pd.DataFrame:
        """All trials as a pandas DataFrame, a row each; as ``optuna.Study.trials_dataframe``, which takes the options.

        The column ``user_attrs_error`` says why a trial failed, ``user_attrs_retry_of`` which lost one it repeats,
        ``user_attrs_epoch`` its best epoch, from 0, and ``user_attrs_seconds`` how long it took.
        """
        frame: pd.DataFrame = self.study.trials_dataframe(**options)
        return frame

    def __repr__(self) -> str:
        states = [trial.state.name.lower() for trial in self.study.get_trials(deepcopy=False)]
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        return f"<SearchResult {self.study.study_name!r}: {counts or 'no trials'}>"
