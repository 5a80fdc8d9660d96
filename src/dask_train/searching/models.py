"""A search with Optuna over models that train in loops, of any kind in :data:`dask_train.fitting.kinds.KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from dask_train.arguments import is_default, positive_int
from dask_train.driver.settings import RunInputs, RunSettings
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.data import check_same_classes, rows_of
from dask_train.fitting.model_kind import TrialRows
from dask_train.fitting.schemas import schema_for
from dask_train.fitting.settings import EpochSettings, KerasSettings
from dask_train.inputs.data import InputData
from dask_train.searching.checks import check_loss, check_search
from dask_train.searching.model_trials import TrialLoop
from dask_train.searching.optuna_study import OptunaStudy
from dask_train.searching.place import DATA, VALIDATION_DATA, DataPlace
from dask_train.searching.pool import PoolSettings
from dask_train.searching.result import SearchResult
from dask_train.searching.settings import StudySettings
from dask_train.searching.tasks import TrialTasks, largest_framework
from dask_train.searching.with_optuna import Subject, TrialMaking, search_with_optuna
from dask_train.training.launch import launch

if TYPE_CHECKING:
    from dask_train.driver.handle import Run


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSearchSettings(EpochSettings, StudySettings):
    """Settings of a search over models, as :func:`dask_train.search` documents them."""

    metric: str = "val_accuracy"
    epochs: int = positive_int(5)
    workers_per_trial: int = positive_int(1)
    class_weight: Mapping[int, float] | None = None
    callbacks: Any = None
    groups: Any = None

    def rows_of(self, x: Any, y: Any) -> tuple[InputData, InputData | None]:
        """Return what is trained on, and what is validated on; nothing is computed.

        Raises
        ------
        ValueError, TypeError
            They can't be put together, or the metric is of validation that there is not.
        """
        named: dict[str, Any] = {"features": self.features, "label": self.label}
        data, validation = rows_of(self, x, y, **named, known=schema_for(None, self.schema), missing=True)
        if self.metric.startswith("val_") and validation is None:
            raise ValueError(
                f"metric={self.metric!r} is of validation: pass validation_data or validation_split; for "
                "estimators cv= or scoring=."
            )
        return data, validation

    def of_trials(self) -> dict[str, Any]:
        """Return settings of all trials that the user has passed; defaults are unknown."""
        settings = {each.name: getattr(self, each.name) for each in fields(KerasSettings) if hasattr(self, each.name)}
        defaults = {each.name: each.default for each in fields(ModelSearchSettings)}
        return {name: value for name, value in settings.items() if not is_default(value, defaults[name])}


@dataclass(frozen=True, kw_only=True)
class OverModels(Subject):
    """Models that ``build`` returns; ``class_weight`` is that of the settings, checked."""

    build: Any
    settings: ModelSearchSettings
    class_weight: Mapping[int, float] | None
    keeps_trials: bool = True

    @property
    def pool(self) -> PoolSettings:
        """Processes of the framework that takes the most memory; each slot has that of its first trial."""
        settings = self.settings
        return PoolSettings(
            framework=largest_framework(), workers=settings.workers_per_trial, concurrency=settings.concurrency
        )

    def fixed(self) -> dict[str, Any]:
        """Return what has to be the same where the search is resumed."""
        names = ("epochs", "shuffle", "validation_batch_size")
        of_settings = {name: getattr(self.settings, name) for name in names}
        return {"batch_size": self.settings.rows, **of_settings, "class_weight": self.class_weight}

    def making(self, place: DataPlace) -> TrialMaking:
        """Return how trials are made: each as ``fit`` would train the model."""
        rows = TrialRows(
            data=place.data[DATA],
            validation=place.data.get(VALIDATION_DATA),
            workers=place.pool.workers,
            labels=cache(place.labels),
            missing=cache(place.missing),
        )
        settings, defaults = self.settings.of_trials(), {"epochs": self.settings.epochs}
        tasks = TrialTasks(build=self.build, rows=rows, arguments=settings, defaults=defaults)
        return TrialMaking(spec=tasks.task, start=partial(_start, tasks))


def search_models(build: Any, x: Any, y: Any, arguments: Mapping[str, Any]) -> SearchResult:
    """Search models with Optuna; see :func:`dask_train.search`.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid.
    """
    check_search(build, *(arguments[name] for name in ("metric", "direction", "seed", "timeout_s", "groups")))
    settings, run = ModelSearchSettings.of(arguments), RunSettings.of(arguments, progress=arguments["progress"])
    check_loss(settings.metric, settings.direction, settings.study)
    if settings.callbacks is not None:
        settings = replace(settings, callbacks=fit_checks.check_callbacks(settings.callbacks) or None)
    data, validation = settings.rows_of(x, y)
    weights = fit_checks.check_weights(settings.class_weight, settings.sample_weight, data)
    check_same_classes(data, validation)
    named = {DATA: data} if validation is None else {DATA: data, VALIDATION_DATA: validation}
    subject = OverModels(build=build, settings=settings, class_weight=weights, metric=settings.metric, data=named)
    return search_with_optuna(build, subject, settings, run)


def _start(tasks: TrialTasks, study: OptunaStudy, inputs: RunInputs, run: RunSettings) -> Run[Any] | None:
    """Start the run of a slot, with the framework that the first trial's model needs; None if none can be built."""
    if tasks.kind is None and not study.prepare():
        return None
    assert tasks.kind is not None
    started: Run[Any] = launch(
        TrialLoop(), {"worker": tasks.rows.workers}, inputs, run, framework=tasks.kind.framework()
    )
    return started
