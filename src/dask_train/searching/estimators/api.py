"""Searches over estimators: Optuna's trials of them, and grids over pipelines, on one data set in shared memory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from sklearn.model_selection import ParameterGrid

from dask_train.arguments import takes
from dask_train.driver.result import leave_result
from dask_train.errors import CheckpointError
from dask_train.fitting.data import FitData
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.checks import categories_of, check_best, check_study, described
from dask_train.searching.estimators.data import estimator_data, folds_of
from dask_train.searching.estimators.grid import GridWork
from dask_train.searching.estimators.kept import kept_grid
from dask_train.searching.estimators.loop import EstimatorLoop
from dask_train.searching.estimators.place import DATA, VALIDATION, opened
from dask_train.searching.estimators.prefixes import candidate_of
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.estimators.scoring import METRIC, check_names, counting, scoring_of
from dask_train.searching.estimators.settings import EstimatorSettings, GridSettings, TrialsSettings
from dask_train.searching.estimators.tasks import EstimatorTasks
from dask_train.searching.estimators.texts import code_text, text_of
from dask_train.searching.estimators.weights import check_takes_weight
from dask_train.searching.kept import kept_search
from dask_train.searching.logged import search_log
from dask_train.searching.opening import open_study
from dask_train.searching.pool import PoolSlot, Slots
from dask_train.searching.result import SearchResult
from dask_train.searching.to_the_end import trained
from dask_train.searching.trials import Trials
from dask_train.training.settings import RunSettings

# Settings of runs that no search takes.
_OF_RUNS_ALONE = ("streaming", "stop", "recovery", "gpus", "wait", "name")


@takes(GridSettings, RunSettings, without=_OF_RUNS_ALONE)
def search_grid(build: Any, x: Any, y: Any, **given: Any) -> GridResult:
    """Search a grid of parameters; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument can't be.
    """
    if not hasattr(build, "get_params") or not hasattr(build, "fit") or isinstance(build, type):
        raise TypeError(f"params= is of an estimator, such as a pipeline; build is {build!r}. Pass one that is made.")
    settings, run = GridSettings.of(given), _run_of(given)
    scoring, policy = settings.scoring, run.checkpoint
    candidates = list(ParameterGrid(settings.params))
    if not any(candidates):
        raise ValueError(
            f"params={settings.params!r} has no points: there is nothing to search. Pass a dict of a parameter's name, "
            "such as 'alpha', to a list of values, at least one."
        )
    data = _rows_of(x, y, settings)
    has_weights = data.columns.weights is not None
    rule = scoring_of(build, scoring, has_weights=has_weights)
    counts = counting(settings.refit, list(rule.scorers))
    for each in candidates:  # so that parameters that there are not are seen first
        made = candidate_of(0, build, each)
        if has_weights:
            check_takes_weight(made.whole)
    asked: dict[str, Any] = {"estimator": text_of(build), "params": text_of(settings.params)}
    asked |= {"scoring": text_of(scoring), "refit": counts}
    with ExitStack() as stack:
        kept = None if policy is None else stack.enter_context(kept_grid(policy, asked, resume=run.resume))
        place = stack.enter_context(opened({DATA: data}, settings.concurrency, run))
        segments = place.held.segments[DATA]
        folds = folds_of(settings.cv, segments, data.columns, place.client)
        splits = folds.of(build)
        if kept is not None:
            kept.check_same({DATA: described(segments), "cv": folds.text(), **categories_of(data.schema)})
        told = search_log(run.log, f"grid-{uuid.uuid4().hex[:6]}", {**asked, "cv": text_of(settings.cv)})
        work = GridWork(build, candidates, splits, rule, counts, kept=kept, log=told)
        display = SearchDisplay(run.progress, metric=counts or next(iter(rule.scorers)), trials=len(candidates))
        try:
            _gone_through(place.slots(EstimatorLoop(columns=data.columns), work, most=work.num_left), work, display)
        except KeyboardInterrupt as error:
            work.cut_short()
            leave_result(error, GridResult(work, list(rule.scorers), len(splits), counts, data.schema))
            raise
    work.warn()
    return GridResult(work, list(rule.scorers), len(splits), counts, data.schema)


def _gone_through(slots: Slots, work: GridWork, display: SearchDisplay) -> None:
    """Do all of the work; what was done is kept and logged also where it is cut short."""

    def show(now: Sequence[PoolSlot]) -> None:
        display.update(work.ended, [slot.handed for slot in now if slot.handed], work.best_ended)

    failure: BaseException | None = None
    try:
        with display:
            slots.train(show)
        work.keep()
    except BaseException as error:
        failure = error
        with suppress(CheckpointError):
            work.keep()
        raise
    finally:
        if work.log is not None:
            work.log.end(failure, work.best_logged)


@takes(TrialsSettings, RunSettings, without=_OF_RUNS_ALONE)
def search_trials(build: Any, x: Any, y: Any, **given: Any) -> SearchResult:
    """Search estimators with Optuna; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument can't be.
    """
    if not callable(build) or hasattr(build, "get_params"):
        raise TypeError(f"build is {build!r}; pass a function of an optuna trial, or params= for a grid of this one.")
    settings, run = TrialsSettings.of(given), _run_of(given)
    scoring, cv, study, seed, policy = settings.scoring, settings.cv, settings.study, settings.seed, run.checkpoint
    direction, timeout_s, study_name = settings.direction, settings.timeout_s, settings.study_name
    check_study(direction, seed, timeout_s)
    if isinstance(scoring, list | tuple | dict | set):
        raise ValueError(f"scoring is {scoring!r}: a search follows one score. Name the one that counts.")
    check_names(scoring)
    data = _rows_of(x, y, settings)
    sources, validation = {DATA: data}, None
    if settings.validation_data is not None:
        if cv is not None or settings.groups is not None:
            beside = "cv" if cv is not None else "groups, which are of folds"
            raise ValueError(
                f"There are validation_data and {beside}; a trial is scored on one or on folds. Leave one out."
            )
        sources[VALIDATION] = _validation(data, settings)
        validation = (VALIDATION, sources[VALIDATION].columns)
    opened_study = partial(
        open_study,
        direction=direction,
        sampler=settings.sampler,
        pruner=settings.pruner,
        storage=settings.storage,
        seed=seed,
    )
    if study is not None:
        study = opened_study(study, study_name=study_name)
    asked: dict[str, Any] = {
        "build": code_text(build),
        "metric": METRIC,
        "direction": direction or ("maximize" if study is None else study.directions[0].name.lower()),
        "scoring": text_of(scoring),
        "seed": seed,
    }
    check_best(policy, METRIC, asked["direction"])
    with ExitStack() as stack:
        kept = None
        if policy is not None:
            kept = stack.enter_context(kept_search(policy, asked, resume=run.resume, of_trials=False))
        if study is None:
            study = opened_study(study_name=study_name or (None if kept is None else kept.study_name))
        if kept is not None:
            kept.check_study(study, build)
        place = stack.enter_context(opened(sources, settings.concurrency, run))
        segments = place.held.segments
        folds = folds_of(cv, segments[DATA], data.columns, place.client) if validation is None else None
        if kept is not None:
            kept.check_same({what: described(each) for what, each in segments.items()} | categories_of(data.schema))
            kept.check_same({} if folds is None else {"cv": folds.text()})
        has_weights = data.columns.weights is not None
        tasks = EstimatorTasks(
            build=build,
            scoring=scoring,
            folds=folds,
            has_weights=has_weights,
            weighs_scores=has_weights if validation is None else validation[1].weights is not None,
        )
        found = Trials(
            study,
            tasks.task,
            metric=METRIC,
            most=settings.trials,
            timeout_s=timeout_s,
            kept=kept,
            log=search_log(run.log, study.study_name, {**asked, "cv": text_of(cv), "trials": settings.trials}),
            schema=data.schema,
        )
        loop = EstimatorLoop(columns=data.columns, validation=validation)
        display = SearchDisplay(run.progress, metric=METRIC, trials=settings.trials)
        result = trained(place.slots(loop, found, most=settings.trials), found, display)
        if kept is not None:
            kept.end()
        return result


def _run_of(given: Mapping[str, Any]) -> RunSettings:
    """Return what concerns the runs; trials and candidates have no steps within, at which checkpoints could be kept."""
    run = RunSettings.of(given, progress=given.get("progress"))
    policy = run.checkpoint
    if policy is not None and policy.every_steps is not None:
        raise ValueError(
            f"every_steps={policy.every_steps} is of trials that keep checkpoints within. A search over estimators is "
            "kept between trials: leave every_steps out."
        )
    return run


def _rows_of(x: Any, y: Any, settings: EstimatorSettings) -> FitData:
    weights, groups = settings.sample_weight, settings.groups
    return estimator_data(DATA, x, y, settings.features, settings.label, sample_weight=weights, groups=groups)


def _validation(data: FitData, settings: TrialsSettings) -> FitData:
    """Return rows that all trials are scored on.

    A frame with the columns that they are fitted on, and that of weights.
    """
    given, label, sample_weight = settings.validation_data, settings.label, settings.sample_weight
    several = given if isinstance(given, tuple | list) else (given,)
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
    weight = sample_weight if not others and isinstance(sample_weight, str) else weight
    found = estimator_data(VALIDATION, x, y, chosen, named, sample_weight=weight, known=data.schema)
    if (found.columns.labels is None) != (data.columns.labels is None):
        raise ValueError(
            f"validation_data has {'no' if found.columns.labels is None else 'some'} targets, and the data has "
            f"{'none' if data.columns.labels is None else 'some'}. Pass both with targets, or both without."
        )
    return found


WHAT = {search_grid: "a grid", search_trials: "estimators"}
