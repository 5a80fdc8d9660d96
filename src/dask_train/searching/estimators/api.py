"""Searches over estimators: Optuna's trials of them, and grids over pipelines, on one data set in shared memory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from sklearn.model_selection import ParameterGrid

from dask_train.checkpoint.policy import Checkpoint, check_checkpoint
from dask_train.driver.result import leave_result
from dask_train.errors import CheckpointError
from dask_train.fitting.checks import check_counts
from dask_train.fitting.data import FitData
from dask_train.logging.log import check_log
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.checks import check_best, check_study, described
from dask_train.searching.estimators.data import estimator_data, folds_of
from dask_train.searching.estimators.grid import GridWork
from dask_train.searching.estimators.kept import kept_grid
from dask_train.searching.estimators.loop import EstimatorLoop
from dask_train.searching.estimators.place import DATA, VALIDATION, opened
from dask_train.searching.estimators.prefixes import candidate_of
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.estimators.rows import Shape
from dask_train.searching.estimators.scoring import METRIC, check_names, counting, scoring_of
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

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def search_grid(  # noqa: PLR0913 - of dt.search
    build: Any,
    x: Any,
    y: Any,
    *,
    params: Any,
    scoring: Any,
    cv: Any,
    refit: bool | str,
    sample_weight: Any,
    groups: Any,
    features: Any,
    label: Any,
    concurrency: int | None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
    resume: bool,
    on: Sequence[str] | None,
    resources: Mapping[str, Any] | None,
    client: Client | None,
    progress: bool | None,
    log: Any,
) -> GridResult:
    """Search a grid of parameters; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument can't be.
    """
    if not hasattr(build, "get_params") or not hasattr(build, "fit") or isinstance(build, type):
        raise TypeError(f"params= is of an estimator, such as a pipeline; build is {build!r}. Pass one that is made.")
    check_counts(concurrency=concurrency)
    policy, loggers = _policy(checkpoint, resume), check_log(log)
    candidates = list(ParameterGrid(params))
    if not candidates:
        raise ValueError(f"params={params!r} has no points. Pass at least one value of each parameter.")
    data, shape = estimator_data(DATA, x, y, features, label, sample_weight=sample_weight, groups=groups)
    has_weights = shape.layout.sample_weight is not None
    rule = scoring_of(build, scoring, has_weights=has_weights)
    counts = counting(refit, list(rule.scorers))
    for each in candidates:  # so that parameters that there are not are seen first
        made = candidate_of(0, build, each)
        if has_weights:
            check_takes_weight(made.whole)
    asked = {"estimator": text_of(build), "params": text_of(params), "scoring": text_of(scoring), "refit": counts}
    with ExitStack() as stack:
        kept = None if policy is None else stack.enter_context(kept_grid(policy, asked, resume=resume))
        place = stack.enter_context(opened({DATA: data}, concurrency, on, resources, client, progress))
        segments = place.held.segments[DATA]
        folds = folds_of(cv, segments, shape, place.client)
        splits = folds.of(build)
        if kept is not None:
            kept.check_same({DATA: described(segments), "cv": folds.text()})
        told = search_log(loggers, f"grid-{uuid.uuid4().hex[:6]}", {**asked, "cv": text_of(cv)})
        work = GridWork(build, candidates, splits, rule, counts, kept=kept, log=told)
        display = SearchDisplay(progress, metric=counts or next(iter(rule.scorers)), trials=len(candidates))
        try:
            _gone_through(place.slots(EstimatorLoop(shape=shape), work, most=work.num_left), work, display)
        except KeyboardInterrupt as error:
            work.cut_short()
            leave_result(error, GridResult(work, list(rule.scorers), len(splits), counts))
            raise
    work.warn()
    return GridResult(work, list(rule.scorers), len(splits), counts)


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


def search_trials(  # noqa: PLR0913 - of dt.search
    build: Any,
    x: Any,
    y: Any,
    *,
    scoring: Any,
    cv: Any,
    direction: str | None,
    trials: int,
    seed: int,
    validation_data: Any,
    sample_weight: Any,
    groups: Any,
    features: Any,
    label: Any,
    concurrency: int | None,
    sampler: Any,
    pruner: Any,
    storage: Any,
    study_name: str | None,
    study: Any,
    timeout_s: float | None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
    resume: bool,
    on: Sequence[str] | None,
    resources: Mapping[str, Any] | None,
    client: Client | None,
    progress: bool | None,
    log: Any,
) -> SearchResult:
    """Search estimators with Optuna; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument can't be.
    """
    if not callable(build) or hasattr(build, "get_params"):
        raise TypeError(f"build is {build!r}; pass a function of an optuna trial, or params= for a grid of this one.")
    check_counts(trials=trials, concurrency=concurrency)
    check_study(direction, seed, timeout_s)
    if isinstance(scoring, list | tuple | dict | set):
        raise ValueError(f"scoring is {scoring!r}: a search follows one score. Name the one that counts.")
    check_names(scoring)
    policy, loggers = _policy(checkpoint, resume), check_log(log)
    data, shape = estimator_data(DATA, x, y, features, label, sample_weight=sample_weight, groups=groups)
    sources, validation = {DATA: data}, None
    if validation_data is not None:
        if cv is not None or groups is not None:
            beside = "cv" if cv is not None else "groups, which are of folds"
            raise ValueError(
                f"There are validation_data and {beside}; a trial is scored on one or on folds. Leave one out."
            )
        sources[VALIDATION], of_validation = _validation(validation_data, shape, features, label, sample_weight)
        validation = (VALIDATION, of_validation)
    opened_study = partial(open_study, direction=direction, sampler=sampler, pruner=pruner, storage=storage, seed=seed)
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
            kept = stack.enter_context(kept_search(policy, asked, resume=resume, of_trials=False))
        if study is None:
            study = opened_study(study_name=study_name or (None if kept is None else kept.study_name))
        if kept is not None:
            kept.check_study(study, build)
        place = stack.enter_context(opened(sources, concurrency, on, resources, client, progress))
        segments = place.held.segments
        folds = folds_of(cv, segments[DATA], shape, place.client) if validation is None else None
        if kept is not None:
            kept.check_same({what: described(each) for what, each in segments.items()})
            kept.check_same({} if folds is None else {"cv": folds.text()})
        has_weights = shape.layout.sample_weight is not None
        tasks = EstimatorTasks(
            build=build,
            scoring=scoring,
            folds=folds,
            has_weights=has_weights,
            weighs_scores=has_weights if validation is None else validation[1].layout.sample_weight is not None,
        )
        found = Trials(
            study,
            tasks.task,
            metric=METRIC,
            most=trials,
            timeout_s=timeout_s,
            kept=kept,
            log=search_log(loggers, study.study_name, {**asked, "cv": text_of(cv), "trials": trials}),
        )
        loop = EstimatorLoop(shape=shape, validation=validation)
        display = SearchDisplay(progress, metric=METRIC, trials=trials)
        result = trained(place.slots(loop, found, most=trials), found, display)
        if kept is not None:
            kept.end()
        return result


def _policy(checkpoint: Any, resume: Any) -> Checkpoint | None:
    """Where trials and candidates are kept, which have no steps within."""
    policy = check_checkpoint(checkpoint, resume)
    if policy is not None and policy.every_steps is not None:
        raise ValueError(
            f"every_steps={policy.every_steps} is of trials that keep checkpoints within. A search over estimators is "
            "kept between trials: leave every_steps out."
        )
    return policy


def _validation(given: Any, shape: Shape, features: Any, label: Any, sample_weight: Any) -> tuple[FitData, Shape]:
    """Rows that all trials are scored on; a frame with the columns that they are fitted on, and that of weights."""
    several = given if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(several) <= 3:
        raise ValueError(
            "validation_data is features, targets and perhaps weights, (X, y) or (X, y, weights), or a frame with its "
            "label."
        )
    x, *others = several
    y, weight = (*others, None, None)[:2]
    chosen = features if shape.dtypes is None else list(shape.dtypes)
    named = label if y is None else None
    weight = sample_weight if not others and isinstance(sample_weight, str) else weight
    found = estimator_data(VALIDATION, x, y, chosen, named, sample_weight=weight)
    if (found[1].layout.y is None) != (shape.layout.y is None):
        raise ValueError(
            f"validation_data has {'no' if found[1].layout.y is None else 'some'} targets, and the data has "
            f"{'none' if shape.layout.y is None else 'some'}. Pass both with targets, or both without."
        )
    return found


WHAT = {search_grid: "a grid", search_trials: "estimators"}
