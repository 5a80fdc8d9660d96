"""Searches over estimators: Optuna's trials of them, and grids over pipelines, on one data set in shared memory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.model_selection import ParameterGrid

from dask_train.arguments import takes
from dask_train.collections.partition.form import is_name
from dask_train.driver.settings import RunSettings
from dask_train.fitting.spec import VALIDATION
from dask_train.inputs.data import InputData
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.checks import check_study
from dask_train.searching.estimators.data import estimator_data, folds_of
from dask_train.searching.estimators.framework import Estimators
from dask_train.searching.estimators.grid import GridState, GridStudy
from dask_train.searching.estimators.loop import EstimatorLoop
from dask_train.searching.estimators.prefixes import candidate_of
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.estimators.scoring import METRIC, check_names, counting, scoring_of
from dask_train.searching.estimators.tasks import EstimatorTasks
from dask_train.searching.estimators.weights import check_takes_weight
from dask_train.searching.kept import kept_search
from dask_train.searching.logged import search_log
from dask_train.searching.place import DATA, VALIDATION_DATA, DataPlace, checked, opened
from dask_train.searching.pool import PoolSettings, trained
from dask_train.searching.result import SearchResult
from dask_train.searching.settings import SearchSettings, StudySettings
from dask_train.searching.texts import text_of
from dask_train.searching.with_optuna import Subject, TrialMaking, search_with_optuna
from dask_train.training.launch import launch

# Settings of runs that no search takes.
_OF_RUNS_ALONE = ("streaming", "stop", "recovery", "gpus", "wait", "name")


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorSettings(SearchSettings):
    """Settings of either search."""

    scoring: Any = None
    cv: Any = None
    sample_weight: Any = None
    groups: Any = None
    features: Any = None
    label: Any = None
    progress: bool | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class GridSettings(EstimatorSettings):
    """Settings of a search of a grid of parameters."""

    params: Any
    refit: bool | str = True


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialsSettings(EstimatorSettings, StudySettings):
    """Settings of a search with Optuna."""

    validation_data: Any = None


@takes(GridSettings, RunSettings, without=_OF_RUNS_ALONE)
def search_grid(build: Any, x: Any, y: Any, **keywords: Any) -> GridResult:
    """Search a grid of parameters; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid.
    """
    if not hasattr(build, "get_params") or not hasattr(build, "fit") or isinstance(build, type):
        raise TypeError(f"params= is of an estimator, such as a pipeline; build is {build!r}. Pass one that is made.")
    settings, run = GridSettings.of(keywords), _run_of(keywords)
    scoring, policy = settings.scoring, run.checkpoint
    candidates = list(ParameterGrid(settings.params))
    if not any(candidates):
        raise ValueError(
            f"params={settings.params!r} has no points: there is nothing to search. Pass a dict of a parameter's name, "
            "such as 'alpha', to a list of values, at least one."
        )
    if policy is not None and policy.best is not None:
        raise ValueError(
            f"The best checkpoint is to be known by {policy.best!r}, and each one of a grid has all scores so far. "
            "Leave best= and mode= out."
        )
    data = _rows_of(x, y, settings)
    has_weights = data.columns.weights is not None
    rule = scoring_of(build, scoring, has_weights=has_weights)
    counts = counting(settings.refit, list(rule.scorers))
    for each in candidates:  # so that parameters that there are not are seen first
        candidate = candidate_of(0, build, each)
        if has_weights:
            check_takes_weight(candidate.whole)
    arguments: dict[str, Any] = {"estimator": text_of(build), "params": text_of(settings.params)}
    arguments |= {"scoring": text_of(scoring), "refit": counts}
    pool = PoolSettings(framework=Estimators(), concurrency=settings.concurrency)
    with ExitStack() as stack:
        named = checked({DATA: data}, run)
        kept = None
        if policy is not None:
            kept = stack.enter_context(kept_search(policy, arguments, GridState, resume=run.resume))
        place = stack.enter_context(opened(named, run, pool))
        folds = folds_of(settings.cv, place.datasets.segments[DATA], data.columns, place.client)
        splits = folds.of(build)
        if kept is not None:
            kept.check_same({**place.description, "cv": folds.text()})
        logged = {**arguments, "cv": text_of(settings.cv)}
        log = stack.enter_context(search_log(run.log, f"grid-{uuid.uuid4().hex[:6]}", logged))
        study = GridStudy(build, candidates, splits, rule, counts, kept=kept, log=log, schema=data.schema)
        start = partial(launch, EstimatorLoop(columns=data.columns), {"worker": 1}, framework=Estimators())
        display = SearchDisplay(run.progress, metric=counts or next(iter(rule.scorers)), trials=len(candidates))
        return trained(place.slots(start, study, num_trials=study.num_left), study, display, GridResult)


@takes(TrialsSettings, RunSettings, without=_OF_RUNS_ALONE)
def search_trials(build: Any, x: Any, y: Any, **keywords: Any) -> SearchResult:
    """Search estimators with Optuna; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid.
    """
    if not callable(build) or hasattr(build, "get_params"):
        raise TypeError(f"build is {build!r}; pass a function of an optuna trial, or params= for a grid of this one.")
    settings, run = TrialsSettings.of(keywords), _run_of(keywords)
    check_study(settings.direction, settings.seed, settings.timeout_s)
    if isinstance(settings.scoring, list | tuple | dict | set):
        raise ValueError(f"scoring is {settings.scoring!r}: a search follows one score. Name the one that counts.")
    check_names(settings.scoring)
    data = {DATA: _rows_of(x, y, settings)}
    if settings.validation_data is not None:
        if settings.cv is not None or settings.groups is not None:
            beside = "cv" if settings.cv is not None else "groups, which are of folds"
            raise ValueError(
                f"There are validation_data and {beside}; a trial is scored on one or on folds. Leave one out."
            )
        data[VALIDATION_DATA] = _validation(data[DATA], settings)
    return search_with_optuna(build, OverEstimators(build=build, settings=settings, data=data), settings, run)


@dataclass(frozen=True, kw_only=True)
class OverEstimators(Subject):
    """Estimators that ``build`` returns."""

    build: Any
    settings: TrialsSettings
    metric: str = METRIC
    keeps_trials: bool = False

    @property
    def pool(self) -> PoolSettings:
        """Processes with scikit-learn."""
        return PoolSettings(framework=Estimators(), concurrency=self.settings.concurrency)

    def fixed(self) -> dict[str, Any]:
        """Return what has to be the same where the search is resumed."""
        scored_on = "folds" if self.settings.validation_data is None else "validation_data"
        return {"scoring": text_of(self.settings.scoring), "scored on": scored_on}

    def logged(self) -> dict[str, Any]:
        """Return what else places of ``log=`` get of the call."""
        return {"cv": text_of(self.settings.cv)}

    def making(self, place: DataPlace) -> TrialMaking:
        """Return how trials are made: each is fitted in a process of its own."""
        columns = {what: each.columns for what, each in self.data.items()}
        validation, folds = columns.get(VALIDATION_DATA), None
        if validation is None:
            folds = folds_of(self.settings.cv, place.datasets.segments[DATA], columns[DATA], place.client)
        tasks = EstimatorTasks(
            build=self.build,
            scoring=self.settings.scoring,
            folds=folds,
            has_weights=columns[DATA].weights is not None,
            weighs_scores=(validation or columns[DATA]).weights is not None,
        )
        loop = EstimatorLoop(columns=columns[DATA], validation=None if validation is None else (VALIDATION, validation))
        return TrialMaking(
            spec=tasks.task,
            start=lambda _, inputs, run: launch(loop, {"worker": 1}, inputs, run, framework=Estimators()),
            fixed={} if folds is None else {"cv": folds.text()},
        )


def _run_of(keywords: Mapping[str, Any]) -> RunSettings:
    """Return what concerns the runs; trials and candidates have no steps within, at which checkpoints could be kept."""
    run = RunSettings.of(keywords, progress=keywords.get("progress"))
    policy = run.checkpoint
    if policy is not None and policy.every_steps is not None:
        raise ValueError(
            f"every_steps={policy.every_steps} is of trials that keep checkpoints within. A search over estimators is "
            "kept between trials: leave every_steps out."
        )
    return run


def _rows_of(x: Any, y: Any, settings: EstimatorSettings) -> InputData:
    weights, groups = settings.sample_weight, settings.groups
    return estimator_data(DATA, x, y, settings.features, settings.label, sample_weight=weights, groups=groups)


def _validation(data: InputData, settings: TrialsSettings) -> InputData:
    """Return rows that all trials are scored on.

    A frame with the columns that they are fitted on, and that of weights.
    """
    validation_data, label, sample_weight = settings.validation_data, settings.label, settings.sample_weight
    several = validation_data if isinstance(validation_data, tuple | list) else (validation_data,)
    if not 1 <= len(several) <= 3:
        raise ValueError(
            "validation_data is features, targets and perhaps weights, (X, y) or (X, y, weights), or a frame with its "
            "label."
        )
    x, *others = several
    y, weight = (*others, None, None)[:2]
    places = data.columns.features
    chosen = list(places) if isinstance(places, dict) else settings.features
    named = label if y is None else None
    weight = sample_weight if not others and is_name(sample_weight) else weight
    validation = estimator_data(VALIDATION_DATA, x, y, chosen, named, sample_weight=weight, known=data.schema)
    if (validation.columns.labels is None) != (data.columns.labels is None):
        raise ValueError(
            f"validation_data has {'no' if validation.columns.labels is None else 'some'} targets, and the data has "
            f"{'none' if data.columns.labels is None else 'some'}. Pass both with targets, or both without."
        )
    return validation


WHAT = {search_grid: "a grid", search_trials: "estimators"}
