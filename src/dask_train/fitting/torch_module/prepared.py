"""A module that is to be trained: checked against the rows, and taken apart for its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import torch

from dask_train.fitting.model_kind import FitRows, TrialRows
from dask_train.fitting.spec import InProcess
from dask_train.fitting.torch_module import checkpoints, checks
from dask_train.fitting.torch_module.settings import STEP, ModuleSettings
from dask_train.fitting.torch_module.storage_checks import check_apart
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining


@dataclass(frozen=True, kw_only=True)
class PreparedModule:
    """A module with what it is trained with.

    Attributes
    ----------
    training
        The module within, with its loss, optimizer, scheduler and metrics.
    optimizer, scheduler
        Made to see that they can be.
    """

    training: ModuleTraining = field(repr=False)
    optimizer: Any = field(repr=False)
    scheduler: Any = field(repr=False)

    @classmethod
    def checked(cls, model: Any, settings: ModuleSettings, rows: FitRows | TrialRows) -> Self:
        """Check the module, its loss, optimizer, scheduler and metrics, and that the rows go through them.

        Raises
        ------
        ValueError, TypeError
            One can't be, or the rows do not fit.
        """
        module: torch.nn.Module = checks.check_module(model)
        loss, metrics = settings.loss, checks.named_metrics(settings.metrics)
        checks.check_loss(loss, module)
        checks.check_rows(module, loss, metrics, rows.data, "The data")
        if rows.validation is not None:
            checks.check_rows(module, loss, metrics, rows.validation, "The validation data", trains=False)
        optimizer = checks.check_optimizer(settings.optimizer, module)
        training = ModuleTraining(
            module=module, loss=loss, optimizer=settings.optimizer, scheduler=settings.scheduler, metrics=metrics
        )
        scheduler = checks.check_scheduler(settings.scheduler, settings.scheduler_interval, optimizer)
        return cls(training=training, optimizer=optimizer, scheduler=scheduler)

    def _sent(self) -> tuple[bytes, list[np.ndarray]]:
        check_apart(self.training.module)
        return checks.sent(self.training)

    def task(
        self, model: Any, settings: ModuleSettings, rows: FitRows | TrialRows, run_fields: Mapping[str, Any]
    ) -> ModuleTask:
        """Return what each worker is sent.

        Parameters
        ----------
        model, settings, rows
            As they were checked.
        run_fields
            Fields of the task that its run knows.

        Raises
        ------
        ValueError, TypeError
            It can't be sent.
        """
        in_process, columns, schema = settings.in_process, rows.data.columns, rows.data.schema
        header, arrays = (b"", []) if in_process else self._sent()
        return ModuleTask(
            header={"training": header},
            arrays=arrays,
            in_process=InProcess(model=self.training) if in_process else None,
            columns=columns,
            validation_columns=None if rows.validation is None else rows.validation.columns,
            **settings.of_task,
            **run_fields,
            random=checks.random_state(),
            by_step=settings.scheduler_interval == STEP,
            outer=settings.outer,
            was_compiled=checks.loses_compiled_code(model, in_process=in_process),
            configuration={
                **checkpoints.configuration_of(self.training, self.optimizer, self.scheduler, columns),
                **({} if settings.outer is None else {"outer": asdict(settings.outer)}),
                "virtual_workers": settings.virtual_workers,
                "scheduler_interval": None if self.scheduler is None else settings.scheduler_interval,
                "frame": None if schema is None or run_fields.get("checkpoint") is None else schema.to_json(),
            },
        )
