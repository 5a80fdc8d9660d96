"""Kinds of model that another package, or the user, describes by a trainer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dask_train.checkpoint.policy import check_best_of_train
from dask_train.driver.result import Result
from dask_train.fitting.kinds import REGISTERED
from dask_train.fitting.model_kind import FitCall, FitRows, FitWork, ModelKind, TrialRows, TrialSpec
from dask_train.fitting.result import FitResult, loop_result
from dask_train.fitting.settings import run_fields, trial_fields
from dask_train.frameworks.base import Framework
from dask_train.frameworks.registry import find_framework
from dask_train.inputs.data import InputData
from dask_train.report.fit_progress import FitDisplay
from dask_train.trainers.common.entry import SpecRole
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.task import LoopTask
from dask_train.trainers.settings import LoopSettings
from dask_train.trainers.trainer import Trainer, TrainSpec


def register_trainer(trainer: Trainer) -> None:
    """Let :func:`dask_train.fit` and :func:`dask_train.search` train models of another class.

    Parameters
    ----------
    trainer : dask_train.trainers.Trainer
        Trainer of these models, and of models of subclasses without a trainer of their own. It goes before the
        library's own training, for instance of ``torch.nn.Module``. A later trainer of a class replaces an earlier one.

    Raises
    ------
    TypeError
        It is no trainer, or its class of models, or of settings, is no class.

    Examples
    --------
    >>> dt.register_trainer(KMeansTrainer())
    >>> dt.fit(KMeans(8), X, epochs=5, batch_size=1000, workers=2)
    """
    candidate: Any = trainer
    kind = getattr(candidate, "model_class", None)
    if not isinstance(candidate, Trainer) or not isinstance(kind, type):
        raise TypeError(
            f"trainer is {trainer!r}; pass an instance of a class that extends dask_train.trainers.Trainer, with the "
            "class of its models as model_class."
        )
    if not issubclass(trainer.settings, LoopSettings):
        raise TypeError(f"settings of {trainer!r} is {trainer.settings!r}; extend dask_train.trainers.LoopSettings.")
    REGISTERED[kind] = TrainerKind(trainer)


def _role(
    model: Any, spec: TrainSpec, settings: LoopSettings, data: InputData, run_fields: Mapping[str, Any]
) -> SpecRole:
    """Return what each worker does."""
    columns = data.columns
    rows = [[one.dtype, list(one.row_shape)] for one in columns] if columns.are_known else None
    configuration = {"model": type(model).__qualname__, "columns": rows, **spec.configuration}
    return SpecRole(spec, LoopTask(**settings.of_loop, **run_fields, configuration=configuration))


class TrainerKind(ModelKind):
    """Models of a trainer.

    Parameters
    ----------
    trainer
        What is known of them.
    """

    name = "registered"
    not_taken = ("streaming",)

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self.settings = trainer, trainer.settings

    def framework(self, *, in_place: bool = False) -> Framework:  # noqa: ARG002 - none is replaced so
        """Return that of NumPy arrays."""
        return find_framework(None)

    def check_best(self, call: FitCall) -> None:
        """Check that the direction of the best score is given, too: which way it goes is not known of these scores."""
        super().check_best(call)
        if call.run.checkpoint is not None:
            check_best_of_train(replace(call.run.checkpoint, restore_best=False))

    def prepared(self, call: FitCall, rows: FitRows) -> TrainSpec:
        """Let the trainer check a model."""
        return self._trainer.spec(call.model, call.settings, _num_features(rows.data))

    def work(self, call: FitCall, rows: FitRows, prepared: TrainSpec) -> FitWork:
        """Return what the workers of a fit do."""
        model, settings = call.model, call.settings
        return FitWork(
            functions=_role(model, prepared, settings, rows.data, run_fields(call.run)),
            params={
                "model": type(model).__name__,
                **{name: value for name, value in settings.of_loop.items() if value},
            },
            display=partial(FitDisplay, epochs=settings.epochs),
            finish=partial(_trained, trainer=self._trainer, model=model, schema=rows.data.schema),
        )

    def trial(self, model: Any, settings: Any, rows: TrialRows) -> TrialSpec:
        """Let the trainer check a model; the best model is a copy of it."""
        spec = self._trainer.spec(model, settings, _num_features(rows.data))
        self.check_together(model, settings, rows.workers)
        return TrialSpec(
            work=_role(model, spec, settings, rows.data, trial_fields()),
            model=lambda trained: self._taken(model, trained),
        )

    def _taken(self, model: Any, trained: dict[str, Any]) -> Any:
        copied = copy.deepcopy(model)
        self._trainer.take(copied, trained)
        return copied


def _num_features(data: InputData) -> int | None:
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
