"""A module that is to be trained: checked against the rows, and taken apart for its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from dask_train.fitting.data import FitData
from dask_train.fitting.spec import InPlace
from dask_train.fitting.torch_module import checkpoints, checks
from dask_train.fitting.torch_module.settings import STEP, ModuleSettings
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining


@dataclass(frozen=True, kw_only=True)
class PreparedModule:
    """A module with what it is trained with and on.

    Attributes
    ----------
    model
        As the user has passed it.
    training
        The module within, with its loss, optimizer, scheduler and metrics.
    settings, data, validation
        How, and on which rows, it is trained.
    optimizer, scheduler
        Made to see that they can be.
    """

    model: Any = field(repr=False)
    training: ModuleTraining = field(repr=False)
    settings: ModuleSettings
    data: FitData
    validation: FitData | None
    optimizer: Any = field(repr=False)
    scheduler: Any = field(repr=False)

    @classmethod
    def checked(cls, model: Any, settings: ModuleSettings, data: FitData, validation: FitData | None) -> Self:
        """Check the module, its loss, optimizer, scheduler and metrics, and that the rows go through them.

        Raises
        ------
        ValueError, TypeError
            One can't be, or the rows do not fit.
        """
        module: torch.nn.Module = checks.check_module(model)
        loss, optimizer, metrics = settings.loss, settings.optimizer, checks.named_metrics(settings.metrics)
        checks.check_loss(loss, module)
        checks.check_rows(module, loss, metrics, data, "The data")
        if validation is not None:
            checks.check_rows(module, loss, metrics, validation, "The validation data", trains=False)
        made = checks.check_optimizer(optimizer, module)
        scheduler = settings.scheduler
        return cls(
            model=model,
            training=ModuleTraining(
                module=module, loss=loss, optimizer=optimizer, scheduler=scheduler, metrics=metrics
            ),
            settings=settings,
            data=data,
            validation=validation,
            optimizer=made,
            scheduler=checks.check_scheduler(scheduler, settings.scheduler_interval, made),
        )

    def task(self, of_run: Mapping[str, Any]) -> ModuleTask:
        """Return what each worker is sent.

        Parameters
        ----------
        of_run
            Fields of the task that its run knows.

        Raises
        ------
        ValueError, TypeError
            It can't be sent.
        """
        settings, data, validation = self.settings, self.data, self.validation
        in_place = settings.in_process
        header, arrays = (b"", []) if in_place else checks.sent(self.training)
        keeps_schema = of_run.get("checkpoint") is not None and data.schema is not None
        return ModuleTask(
            header={"training": header},
            arrays=arrays,
            in_place=InPlace(model=self.training) if in_place else None,
            columns=data.columns,
            validation_columns=None if validation is None else validation.columns,
            **settings.of_task,
            **of_run,
            random=checks.random_state(),
            by_step=settings.scheduler_interval == STEP,
            was_compiled=checks.loses_compiled_code(self.model, in_place=in_place),
            configuration={
                **checkpoints.configuration_of(self.training, self.optimizer, self.scheduler, data.columns),
                "frame": data.schema.to_json() if keeps_schema and data.schema is not None else None,
            },
        )
