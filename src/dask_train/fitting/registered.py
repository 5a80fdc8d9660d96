"""``fit`` of a kind of model that another package, or the user, describes by a trainer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dask_train.arguments import takes
from dask_train.checkpoint.policy import check_best_of_train
from dask_train.cluster.arrivals import default_fit_workers
from dask_train.cluster.clients import client_or_local
from dask_train.driver.handle import Run
from dask_train.driver.result import Result
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.data import FitData, fit_data, inputs_of
from dask_train.fitting.kinds import FIT_BY_CLASS, SEARCH
from dask_train.fitting.result import FitResult, loop_result
from dask_train.fitting.searched import SearchedKind, TrialRows, TrialSpec
from dask_train.fitting.settings import of_run, of_trial
from dask_train.fitting.stop_checks import check_stop_names
from dask_train.frameworks.base import Framework
from dask_train.frameworks.registry import find_framework
from dask_train.report.fit_progress import FitDisplay
from dask_train.trainers.common.entry import SpecRole
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.task import LoopTask
from dask_train.trainers.settings import LoopSettings
from dask_train.trainers.trainer import Trainer, TrainSpec
from dask_train.training.in_process import run_in_process
from dask_train.training.launch import launch
from dask_train.training.settings import RunSettings


def register_trainer(trainer: Trainer) -> None:
    """Let :func:`dask_train.fit` and :func:`dask_train.search` train models of another class.

    Parameters
    ----------
    trainer : dask_train.trainers.Trainer
        What is known of these models. One that is registered later takes the place of an earlier one of its class.

    Raises
    ------
    TypeError
        It is no trainer, or its class of models, or of settings, is no class.

    Examples
    --------
    >>> dt.register_trainer(KMeansTrainer())
    >>> dt.fit(KMeans(8), X, epochs=5, batch_size=1000, workers=2)
    """
    given: Any = trainer
    kind = getattr(given, "model_class", None)
    if not isinstance(given, Trainer) or not isinstance(kind, type):
        raise TypeError(
            f"trainer is {trainer!r}; pass an instance of a class that extends dask_train.trainers.Trainer, with the "
            "class of its models as model_class."
        )
    if not issubclass(trainer.settings, LoopSettings):
        raise TypeError(f"settings of {trainer!r} is {trainer.settings!r}; extend dask_train.trainers.LoopSettings.")
    name = f"{kind.__module__}.{kind.__qualname__}"
    FIT_BY_CLASS[name], SEARCH[name] = _fit_of(trainer), SearchedByTrainer(trainer)


def _fit_of(trainer: Trainer) -> Callable[..., FitResult | Run[FitResult]]:
    """Return the function of ``fit`` for the models of a trainer."""

    @takes(trainer.settings, RunSettings, without=("streaming",))
    def fit_registered(model: Any, x: Any = None, y: Any = None, **given: Any) -> FitResult | Run[FitResult]:
        return _fit(trainer, model, x, y, given)

    return fit_registered


def _fit(trainer: Trainer, model: Any, x: Any, y: Any, given: dict[str, Any]) -> Any:
    settings = trainer.settings.of(given)
    run = RunSettings.of(given, progress=settings.progress).named("fit")
    run.needs(["worker"])
    check_stop_names(run.stop, validates=False)
    if run.checkpoint is not None:
        fit_checks.check_best_of_fit(run.checkpoint, validates=False, ps=0)
        check_best_of_train(replace(run.checkpoint, restore_best=False))
    data = fit_data("data", x, y, settings.sample_weight, features=settings.features, label=settings.label)
    inputs = inputs_of(data, None)
    spec = trainer.spec(model, settings, _num_features(data))
    workers = 1 if settings.in_process else settings.workers
    if not settings.in_process:
        run = replace(run, client=client_or_local(run.client, workers or 0))
        workers = workers or default_fit_workers(run.client, run.on, run.gpus)
    assert workers is not None
    fit_checks.check_share(settings.rows, workers)
    kind = type(model)
    start: Any = run_in_process if settings.in_process else launch
    return start(
        _role(model, spec, settings, data, of_run(run)),
        {"worker": 0 if settings.in_process else workers},
        inputs,
        run,
        params={"model": kind.__name__, **{name: value for name, value in settings.of_loop.items() if value}},
        display=partial(FitDisplay, epochs=settings.epochs),
        finish=partial(_trained, trainer=trainer, model=model, schema=data.schema),
    )


def _role(model: Any, spec: TrainSpec, settings: LoopSettings, data: FitData, of_run: Mapping[str, Any]) -> SpecRole:
    """Return what each worker does."""
    columns = data.columns
    rows = [[one.dtype, list(one.row_shape)] for one in columns] if columns.are_known else None
    configuration = {"model": type(model).__qualname__, "columns": rows, **spec.configuration}
    return SpecRole(spec, LoopTask(**settings.of_loop, **of_run, configuration=configuration))


class SearchedByTrainer(SearchedKind):
    """Models of a trainer as a search trains them.

    Parameters
    ----------
    trainer
        What is known of them.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self.settings = trainer, trainer.settings

    def framework(self) -> Framework:
        """Return that of NumPy arrays, as ``fit`` takes it."""
        return find_framework(None)

    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:
        """Let the trainer check a model; the best model is a copy of it."""
        spec = self._trainer.spec(model, settings, _num_features(rows.data))
        fit_checks.check_share(settings.rows, rows.workers)
        return TrialSpec(
            work=_role(model, spec, settings, rows.data, of_trial()), model=lambda trained: self._taken(model, trained)
        )

    def _taken(self, model: Any, trained: dict[str, Any]) -> Any:
        copied = copy.deepcopy(model)
        self._trainer.take(copied, trained)
        return copied


def _num_features(data: FitData) -> int | None:
    """Return the length of a row of the inputs, where they are one array of two dimensions whose shape is known."""
    columns = data.columns
    if not columns.are_known or not isinstance(columns.features, int) or len(columns.matrix.row_shape) != 1:
        return None
    return int(columns.matrix.row_shape[0])


def _trained(result: Result, trainer: Trainer, model: Any, schema: Any) -> FitResult:
    outcome: Outcome | None = result.results["worker"][0]
    if outcome is not None:
        trainer.take(model, outcome.header)
    return loop_result(result, outcome, model, schema)
