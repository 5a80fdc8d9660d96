"""A search with Optuna over models that train in loops, of any kind in :data:`dask_train.fitting.kinds.SEARCH`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.arguments import is_default, positive_int
from dask_train.cluster.clients import client_or_local
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.source import Source
from dask_train.driver.preflight import check_checkpoints
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.data import (
    FitData,
    check_same_classes,
    check_some_rows,
    fit_data,
    split_off,
    validation_of,
)
from dask_train.fitting.schemas import schema_for
from dask_train.fitting.searched import TrialRows
from dask_train.fitting.settings import EpochSettings, KerasSettings
from dask_train.fitting.spec import VALIDATION
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.checks import categories_of, check_best, check_search, described
from dask_train.searching.estimators.texts import code_text
from dask_train.searching.kept import kept_search
from dask_train.searching.logged import search_log
from dask_train.searching.model_trials import TrialLoop
from dask_train.searching.opening import open_study
from dask_train.searching.pool import Crew, Slots
from dask_train.searching.result import SearchResult
from dask_train.searching.room import capacity_of, entered, room_of, run_of_trials, runs_on_host
from dask_train.searching.tasks import TrialTasks, largest_framework
from dask_train.searching.to_the_end import trained
from dask_train.searching.trials import Trials
from dask_train.shared_data.budget import RoleMemory
from dask_train.shared_data.held import HeldDataSets
from dask_train.shared_data.segments import SharedSegments
from dask_train.trainers.settings import LoopSettings
from dask_train.training.launch import launch
from dask_train.training.settings import RunInputs, RunSettings

if TYPE_CHECKING:
    from dask_train.driver.handle import Run

_DATA, _VALIDATION = "data", "validation_data"


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSearchSettings(EpochSettings):
    """Settings of a search over models, as :func:`dask_train.search` tells of them."""

    metric: str = "val_accuracy"
    direction: str | None = None
    trials: int = positive_int(20)
    workers_per_trial: int = positive_int(1)
    concurrency: int | None = positive_int(None)
    sampler: Any = None
    pruner: Any = None
    storage: Any = None
    study_name: str | None = None
    study: Any = None
    timeout_s: float | None = None
    class_weight: Mapping[int, float] | None = None
    callbacks: Any = None
    groups: Any = None

    def opened(self, kept_name: str | None = None) -> Any:
        """Return the study that the user has passed, else a new one, or the one of its name, or of a kept search."""
        return open_study(
            self.study,
            direction=self.direction,
            sampler=self.sampler,
            pruner=self.pruner,
            storage=self.storage,
            study_name=self.study_name or (None if self.study is not None else kept_name),
            seed=self.seed,
        )

    def rows_of(self, x: Any, y: Any) -> tuple[FitData, FitData | None]:
        """Return what is trained on, and what is validated on; nothing is computed.

        Raises
        ------
        ValueError, TypeError
            They can't be put together, or the metric is of validation that there is not.
        """
        like = Conformer(schema_for(None, self.schema))
        data = fit_data("data", x, y, self.sample_weight, features=self.features, label=self.label, like=like)
        validation: FitData | None = None
        if self.validation_data is not None:
            validation = validation_of(self.validation_data, self.features, self.label, self.sample_weight, data.schema)
        elif self.validation_split:
            data, validation = split_off(data, self.validation_split)
        if self.metric.startswith("val_") and validation is None:
            raise ValueError(
                f"metric={self.metric!r} is of validation: pass validation_data or validation_split; for "
                "estimators cv= or scoring=."
            )
        return data, validation

    def of_trials(self) -> dict[str, Any]:
        """Return settings of all trials: those that every kind of model has, and others that the user has passed."""
        common = {each.name for each in fields(LoopSettings)}
        told = {each.name: getattr(self, each.name) for each in fields(KerasSettings) if hasattr(self, each.name)}
        defaults = {each.name: each.default for each in fields(ModelSearchSettings)}
        return {name: value for name, value in told.items() if name in common or not is_default(value, defaults[name])}


def search_models(build: Any, x: Any, y: Any, given: Mapping[str, Any]) -> SearchResult:
    """Search models with Optuna; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument can't be.
    """
    check_search(build, *(given[name] for name in ("metric", "direction", "seed", "timeout_s", "groups")))
    settings, run = ModelSearchSettings.of(given), RunSettings.of(given, progress=given["progress"])
    if settings.callbacks is not None:
        settings = replace(settings, callbacks=fit_checks.check_callbacks(settings.callbacks) or None)
    needs = run.needs(["worker"]).get("worker", {})
    data, validation = settings.rows_of(x, y)
    weights = fit_checks.check_weights(settings.class_weight, settings.sample_weight, data)
    study = None if settings.study is None else settings.opened()
    arguments = _fixed(build, settings, study) | {"class_weight": weights}
    check_best(run.checkpoint, settings.metric, arguments["direction"])
    sources = _sources(data, validation)
    with ExitStack() as stack:
        kept = None
        if run.checkpoint is not None:
            kept = stack.enter_context(kept_search(run.checkpoint, arguments, resume=run.resume))
        if study is None:
            study = settings.opened(None if kept is None else kept.study_name)
        if kept is not None:
            kept.check_study(study, build)
        workers, run = settings.workers_per_trial, replace(run, client=client_or_local(run.client, 0))
        assert run.client is not None
        peer = entered(run.client, run.on, needs, workers)
        peer.run(check_checkpoints, peer, None if kept is None else kept.place, run.on)
        held = HeldDataSets(peer, sources)
        stack.callback(held.release)
        held.compute(RoleMemory.of(largest_framework(), workers * (settings.concurrency or 1)))
        data = replace(data, columns=data.columns.with_rows(held.segments[_DATA].schema.in_batch))
        if validation is not None:
            known = held.segments[_VALIDATION].schema.in_batch
            validation = replace(validation, columns=validation.columns.with_rows(known))
        if kept is not None:
            kept.check_same(
                {what: described(each) for what, each in held.segments.items()} | categories_of(data.schema)
            )
        tasks = TrialTasks(
            build=build,
            rows=TrialRows(data=data, validation=validation, workers=workers),
            given=settings.of_trials(),
        )
        trials = Trials(
            study,
            tasks.task,
            metric=settings.metric,
            most=settings.trials,
            timeout_s=settings.timeout_s,
            kept=kept,
            log=search_log(run.log, study.study_name, {**arguments, "trials": settings.trials}),
            schema=data.schema,
        )
        most = min(settings.trials, settings.concurrency or settings.trials)
        on_host = runs_on_host(room_of(peer, run.on, needs), workers, most)
        crew = Crew(
            start=partial(
                _start,
                trials,
                tasks,
                inputs=_inputs(held.segments),
                run=run_of_trials(run, run.client, on_host),
            ),
            workers=workers,
            most=settings.concurrency,
            capacity=partial(capacity_of, peer, run.on, needs),
        )
        display = SearchDisplay(run.progress, metric=settings.metric, trials=settings.trials)
        result = trained(Slots(peer, crew, trials), trials, display)
        if kept is not None:
            kept.end()
        return result


def _start(trials: Trials, tasks: TrialTasks, *, inputs: RunInputs, run: RunSettings) -> Run[Any] | None:
    """Start the run of a slot, with the framework that the first trial's model needs; None where none can be built."""
    if tasks.kind is None and not trials.prepare():
        return None
    assert tasks.kind is not None
    started: Run[Any] = launch(
        TrialLoop(), {"worker": tasks.rows.workers}, inputs, run, framework=tasks.kind.framework()
    )
    return started


def _fixed(build: Any, settings: ModelSearchSettings, study: Any) -> dict[str, Any]:
    """Return what has to be the same where the search is resumed."""
    direction = "maximize" if study is None else study.directions[0].name.lower()
    names = ("metric", "epochs", "shuffle", "seed", "validation_batch_size")
    return {
        "build": code_text(build),
        "direction": settings.direction or direction,
        "batch_size": settings.rows,
        **{name: getattr(settings, name) for name in names},
    }


def _sources(data: FitData, validation: FitData | None) -> dict[str, Source | SharedSegments]:
    check_same_classes(data, validation)
    sources = {_DATA: data.source(_DATA)}
    check_some_rows("The data", sources[_DATA])
    if validation is not None:
        sources[_VALIDATION] = validation.source(_VALIDATION)
    return sources


def _inputs(segments: Mapping[str, SharedSegments]) -> RunInputs:
    named = {VALIDATION: segments[_VALIDATION]} if _VALIDATION in segments else {}
    return RunInputs(data={"worker": segments[_DATA]}, datasets=named)
