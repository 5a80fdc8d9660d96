"""Settings with which modules of torch are trained and evaluated; values that import no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_train.arguments import CheckedSettings, checked_by, one_of, positive_int
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.fitting.settings import EpochSettings
from dask_train.report.progress import progress_of

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

EPOCH, STEP = "epoch", "step"


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleSettings(EpochSettings):
    """Settings of a fit of a module.

    Attributes
    ----------
    loss
        Function or instance of a ``torch.nn`` loss, of the module's outputs and the targets; of the outputs alone
        where there are no targets. It gives one number for a global batch, a mean, a sum or any other.
    optimizer
        Callable that makes an optimizer of a list of parameters: ``torch.optim.Adam``,
        ``partial(torch.optim.SGD, lr=0.1)``, a function. Or an optimizer of the module's own parameters: training
        continues with its state, and afterwards it has the new state, for another ``fit``.
    scheduler
        What makes a scheduler of the optimizer, such as ``partial(torch.optim.lr_scheduler.StepLR, step_size=5)``.
        ``ReduceLROnPlateau`` is given ``val_loss``, or ``loss`` where the epoch was not validated.
    scheduler_interval
        "epoch" for a scheduler that is stepped at the end of each epoch, after validation; "step" for one that is
        stepped with each batch.
    metrics
        A dict by name, or a list, of metrics of torchmetrics, and of functions of outputs and targets. They are given
        all rows of each global batch, in the first worker, so they are exact. Of a function the mean over batches is
        taken, weighed by their rows.
    virtual_workers
        Number of shares that each global batch is cut into, whatever the number of workers: the result has the same
        bits for 1 to that many. None for one per worker.
    """

    loss: Callable[..., Any]
    optimizer: Any
    scheduler: Callable[[Any], Any] | None = None
    scheduler_interval: str = one_of(EPOCH, STEP, default=EPOCH)
    metrics: Mapping[str, Any] | Sequence[Any] | None = None
    virtual_workers: int | None = positive_int(None)

    @property
    def of_task(self) -> dict[str, Any]:
        """Fields of the task that each role process is sent."""
        return {**super().of_task, "num_shares": self.virtual_workers or 0}


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleEvaluation(CheckedSettings):
    """Settings of an evaluation of a module.

    Attributes
    ----------
    loss, metrics
        As :class:`ModuleSettings` has them. The loss is the mean of those of the batches, weighed by their rows.
    batch_size
        Rows of a batch, over all workers.
    workers
        Number of workers that share the rows. Default: as many as of ``fit``.
    sample_weight, features, label, schema, verbose, client
        As in :func:`dask_train.evaluate`.
    """

    loss: Callable[..., Any]
    metrics: Mapping[str, Any] | Sequence[Any] | None = None
    sample_weight: Any = None
    batch_size: int = positive_int(256)
    features: str | Sequence[str] | Mapping[str, Any] | None = None
    label: str | Sequence[str] | Mapping[str, Any] | None = None
    verbose: str | int | bool = checked_by(progress_of, "auto")
    workers: int | None = positive_int(None)
    schema: FrameSchema | str | os.PathLike[str] | None = None
    client: Client | None = None
