"""What is trained for a trial of ``search``: the model that the user's ``build`` returns, and how it is fitted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dask_train.config import Deadlines
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.api import taken_apart
from dask_train.fitting.data import FitData
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.settings import KerasSettings
from dask_train.fitting.spec import FitTask
from dask_train.searching.checks import check_built

# What `build` may tell of a trial besides its model.
_OF_TRIAL = ("batch_size", "epochs", "callbacks", "class_weight")


@dataclass(frozen=True, kw_only=True)
class TrialTasks:
    """What is trained for each trial: how they are fitted, where they do not say otherwise themselves."""

    build: Callable[[Any], Any]
    data: FitData
    validation: FitData | None
    workers: int
    settings: KerasSettings

    def task(self, trial: Any) -> FitTask:
        """Return what is to be trained for a trial of Optuna."""
        model, given = self._built(trial)
        check_built(model)
        fit_checks.check_model(model)
        settings = replace(self.settings, **given)
        fit_checks.check_share(settings.rows, self.workers)
        fit_checks.check_together(model, self.workers)
        fit_checks.check_rows(model, self.data, self.validation)
        header, arrays = taken_apart(model)
        return FitTask(
            header=header,
            arrays=arrays,
            columns=self.data.columns,
            validation_columns=None if self.validation is None else self.validation.columns,
            callbacks=send_callbacks(fit_checks.check_callbacks(settings.callbacks)),
            **settings.of_task,
            class_weight=fit_checks.check_weights(settings.class_weight, None, self.data),
            num_classes=fit_checks.num_classes_of(model),
            run=uuid.uuid4().hex,
            patience_s=1.5 * Deadlines.from_dask_config().progress_s,
        )

    def _built(self, trial: Any) -> tuple[Any, dict[str, Any]]:
        made = self.build(trial)
        if not isinstance(made, tuple):
            return made, {}
        if len(made) != 2 or not isinstance(made[1], Mapping):
            raise TypeError(f"build returned a tuple of {len(made)}; it returns a model, or a model and a dict.")
        if unknown := sorted(map(str, set(made[1]) - set(_OF_TRIAL))):
            raise ValueError(f"build told {', '.join(unknown)} of a trial; it can tell {', '.join(_OF_TRIAL)}.")
        return made[0], dict(made[1])
