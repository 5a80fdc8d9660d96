"""Keras models as ``fit`` and ``search`` take them; Keras is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dask_train.fitting import checks as fit_checks
from dask_train.fitting.logged import params_of
from dask_train.fitting.loss_trial import check_losses
from dask_train.fitting.model_kind import FitCall, FitRows, FitWork, ModelKind, TrialRows, TrialSpec
from dask_train.fitting.refusals import (
    check_callbacks_with_servers,
    check_served,
    check_servers,
    warn_of_idle_callbacks,
)
from dask_train.fitting.result import trained
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.roles.variables import Variables
from dask_train.fitting.settings import KerasSettings, run_fields, trial_fields
from dask_train.fitting.spec import FitTask, InProcess
from dask_train.fitting.stop_checks import (
    check_monitored,
    check_one_number,
    names_logged,
    of_several_classes,
    scores_of_model,
)
from dask_train.fitting.wire import check_dtypes
from dask_train.frameworks.keras.adapter import KerasFramework
from dask_train.frameworks.registry import find_framework
from dask_train.inputs.making import columns_for
from dask_train.trainers.common.fit_checkpoint import MODEL


class KerasModels(ModelKind):
    """Compiled Keras models."""

    name = "keras"
    settings = KerasSettings
    grows = True
    trial_settings = ("batch_size", "epochs", "callbacks", "class_weight")

    def roles(self, call: FitCall) -> dict[str, int]:
        """Return how many processes there are of each role: parameter servers and a scorer, too."""
        counts = {"ps": call.settings.ps, **super().roles(call), "scorer": call.settings.scorer}
        return {role: count for role, count in counts.items() if count or role == "worker"}

    def check(self, call: FitCall) -> None:
        """Check the model, its callbacks, and that there can be so many servers and scorers."""
        settings = call.settings
        fit_checks.check_model(call.model)
        callbacks = fit_checks.check_callbacks(settings.callbacks)
        check_servers(settings.ps, settings.scorer, validates=settings.validates)
        check_callbacks_with_servers(callbacks, settings.ps, settings.scorer)
        if not (settings.validates or settings.in_process):
            warn_of_idle_callbacks(callbacks)
        check_monitored(callbacks, self.scores(call), validates=settings.validates)
        check_one_number(call.model, call.run.stop, call.run.checkpoint, callbacks)

    def traits(self, call: FitCall) -> list[str]:
        """Return what keeps a lost worker from being replaced in place."""
        if not call.in_place:
            return []
        from dask_train.fitting.roles.models import is_own

        return [name for name in ("train_step", "compute_metrics") if is_own(call.model, name)]

    def scores(self, call: FitCall) -> set[str] | None:
        """Return the names in the model's logs."""
        return scores_of_model(call.model, fit_checks.check_callbacks(call.settings.callbacks))

    def columns(self, call: FitCall) -> tuple[Any, Any]:
        """Return the columns for each input and output."""
        settings = call.settings
        return columns_for(call.model, call.x, call.y, settings.features, settings.label)

    def prepared(self, call: FitCall, rows: FitRows) -> dict[int, float] | None:
        """Check that rows go through the model and its loss, and return the weights of classes."""
        settings = call.settings
        weights = fit_checks.check_weights(settings.class_weight, settings.sample_weight, rows.data)
        fit_checks.check_rows(call.model, rows.data, rows.validation, in_process=settings.in_process)
        check_served(call.model, settings.ps)
        check_dtypes(settings.wire, ((one.path, one.dtype) for one in call.model.trainable_variables))
        return weights

    def one_per_dask_worker(self, call: FitCall) -> bool:
        """Return whether there are parameter servers, with which each worker takes steps of its own."""
        return bool(call.settings.ps)

    def check_together(self, model: Any, settings: KerasSettings, workers: int) -> None:
        """Check the layers, too."""
        super().check_together(model, settings, workers)
        fit_checks.check_together(model, workers, ps=settings.ps)

    def size_check(self, call: FitCall) -> Callable[[int], None] | None:
        """Check that each worker has a share; one alone with parameter servers may do what several can't."""
        return None if call.settings.ps and not _may_be_several(call) else super().size_check(call)

    def work(self, call: FitCall, rows: FitRows, prepared: dict[int, float] | None) -> FitWork:
        """Return what all roles do."""
        model, settings, data = call.model, call.settings, rows.data
        callbacks, in_process = fit_checks.check_callbacks(settings.callbacks), settings.in_process
        header, arrays = ({}, []) if in_process and call.run.checkpoint is None else taken_apart(model)
        if (call.workers or 1) > 1 and not settings.ps:
            check_losses(model, (header, arrays), data, prepared)
        variables = Variables() if in_process else Variables.of(callbacks, parts_of_model(model, callbacks))
        task = FitTask(
            header=header,
            arrays=arrays,
            in_process=InProcess(model=model, callbacks=callbacks) if in_process else None,
            frame=None if call.run.checkpoint is None or data.schema is None else data.schema.to_json(),
            callbacks=b"" if in_process else send_callbacks(callbacks, variables),
            **_of_task(model, settings, rows),
            **run_fields(call.run),
            initial_epoch=settings.initial_epoch,
            random=random_state(),
            class_weight=prepared,
            scored_elsewhere=bool(settings.scorer),
            new_learning_rate=settings.new_learning_rate,
            several_workers=_may_be_several(call),
        )
        return FitWork(
            functions=dict.fromkeys(self.roles(call), FitRole(task)),
            params=params_of(model, task),
            display=settings.display,
            finish=partial(
                trained,
                model=model,
                callbacks=callbacks,
                variables=variables,
                params={"verbose": 1 if settings.verbose == "auto" else settings.verbose, "epochs": settings.epochs},
                schema=data.schema,
            ),
        )

    def framework(self, *, in_place: bool = False) -> KerasFramework:
        """Return that of Keras on this process's backend."""
        return keras_framework(in_place=in_place)

    def trial(self, model: Any, settings: KerasSettings, rows: TrialRows) -> TrialSpec:
        """Check a model as ``fit`` does; the best model is held taken apart."""
        from dask_train.fitting.roles.entry import KerasTrialRole  # with the loop, which no client of a fit needs

        fit_checks.check_model(model)
        callbacks = fit_checks.check_callbacks(settings.callbacks)
        names, validates = scores_of_model(model, callbacks), rows.validation is not None
        check_monitored(callbacks, names, validates=validates)
        check_one_number(model, None, None, callbacks)
        self.check_together(model, settings, rows.workers)
        fit_checks.check_rows(model, rows.data, rows.validation)
        header, arrays = taken_apart(model)
        task = FitTask(
            header=header,
            arrays=arrays,
            callbacks=send_callbacks(callbacks, Variables(parts=parts_of_model(model, callbacks))),
            **_of_task(model, settings, rows),
            **trial_fields(),
            class_weight=fit_checks.check_weights(settings.class_weight, None, rows.data),
        )
        # A search compares numbers.
        scores = None if names is None else names_logged(names - of_several_classes(model).keys(), validates=validates)
        return TrialSpec(work=KerasTrialRole(task), model=lambda trained: _parts_of(header, trained), scores=scores)


def _may_be_several(call: FitCall) -> bool:
    """Return whether several workers train a model, or will where their number follows the cluster."""
    return (call.workers or 1) > 1 or call.run.follows is not None


def _of_task(model: Any, settings: KerasSettings, rows: FitRows | TrialRows) -> dict[str, Any]:
    """Return fields of a task that fits and trials have."""
    return {
        "columns": rows.data.columns,
        "validation_columns": None if rows.validation is None else rows.validation.columns,
        "num_classes": fit_checks.num_classes_of(model),
        **settings.of_task,
    }


def _parts_of(begun: dict[str, Any], trained: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return a model taken apart, with what it takes to make one, which workers do not send back."""
    header, arrays = trained[MODEL]["parts"]
    return {**begun, **header}, arrays


def keras_framework(*, in_place: bool = False) -> KerasFramework:
    """Return the adapter of Keras on this process's backend; ``in_place`` as of :class:`FitFramework`."""
    import keras

    backend = keras.backend.backend()
    return KerasFramework(backend, find_framework(backend), in_place=in_place)


def random_state() -> Any:
    """Return the state of torch's random numbers, where Keras runs on it; imports Keras when it is called."""
    from dask_train.fitting.roles.weights import value_of
    from dask_train.keras_models.torch_state import torch_random

    return next(map(value_of, torch_random()), None)


def taken_apart(model: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a model as it travels; imports Keras when it is called."""
    from dask_train.keras_models.serialization import model_to_parts

    return model_to_parts(model)


def parts_of_model(model: Any, callbacks: Sequence[Any]) -> dict[str, Any]:
    """Return the parts of a model to which callbacks may refer, none without callbacks; imports Keras otherwise."""
    if not callbacks:
        return {}
    from dask_train.keras_models.parts import parts_by_key

    return parts_by_key(model)


KERAS_MODELS = KerasModels()
