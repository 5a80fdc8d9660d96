"""Keras models as a search trains them."""

from __future__ import annotations

from typing import Any

from dask_train.fitting import checks as fit_checks
from dask_train.fitting.api import keras_framework, taken_apart
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.roles.trial import KerasTrialRole
from dask_train.fitting.searched import SearchedKind, TrialRows, TrialSpec
from dask_train.fitting.settings import KerasSettings, of_trial
from dask_train.fitting.spec import FitTask
from dask_train.frameworks.keras.adapter import KerasFramework
from dask_train.trainers.common.fit_checkpoint import MODEL


class SearchedKerasModels(SearchedKind):
    """Compiled Keras models."""

    settings = KerasSettings

    @property
    def of_trial(self) -> tuple[str, ...]:
        """Names of settings that ``build`` may return with a model."""
        return ("batch_size", "epochs", "callbacks", "class_weight")

    def framework(self) -> KerasFramework:
        """Return that of Keras on this process's backend."""
        return keras_framework()

    def trial(self, model: Any, settings: KerasSettings, rows: TrialRows) -> TrialSpec:
        """Check a model as ``fit`` does; the best model is held taken apart."""
        fit_checks.check_model(model)
        fit_checks.check_share(settings.rows, rows.workers)
        fit_checks.check_together(model, rows.workers)
        fit_checks.check_rows(model, rows.data, rows.validation)
        header, arrays = taken_apart(model)
        task = FitTask(
            header=header,
            arrays=arrays,
            columns=rows.data.columns,
            validation_columns=None if rows.validation is None else rows.validation.columns,
            callbacks=send_callbacks(fit_checks.check_callbacks(settings.callbacks)),
            **settings.of_task,
            **of_trial(),
            class_weight=fit_checks.check_weights(settings.class_weight, None, rows.data),
            num_classes=fit_checks.num_classes_of(model),
        )
        return TrialSpec(work=KerasTrialRole(task), model=lambda trained: _parts_of(header, trained))


def _parts_of(begun: dict[str, Any], trained: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return a model taken apart, with what it takes to make one, which workers do not send back."""
    header, arrays = trained[MODEL]["parts"]
    return {**begun, **header}, arrays


KERAS_MODELS = SearchedKerasModels()
