"""Settings with which modules of torch are trained and evaluated; values that import no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_train.arguments import CheckedSettings, checked_by, fraction, one_of, positive_int, whole_number
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.fitting.settings import GradientSettings
from dask_train.fitting.torch_module.task import OuterOptimizer
from dask_train.report.progress import progress_of

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

EPOCH, STEP = "epoch", "step"
# As in the paper of DiLoCo, arXiv:2311.08105, section 3.
OUTER_LEARNING_RATE, OUTER_MOMENTUM = 0.7, 0.9


def _check_outer_learning_rate(rate: Any) -> None:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise ValueError(f"outer_learning_rate is {rate!r}; it is a number above 0.")


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleSettings(GradientSettings):
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
    sync_every
        Number of steps that workers take alone, on their own rows, before they move the weights that they share;
        they do so at the end of each epoch, too. None: they sum gradients in each step.
    outer_learning_rate, outer_momentum
        Of the outer optimizer that moves them, SGD with Nesterov's momentum. None: 0.7 and 0.9. With 1 and 0 the
        weights become their mean over the workers.
    virtual_workers
        Number of shares that each global batch is cut into, whatever the number of workers: the result has the same
        bits for 1 to that many. None for one per worker.
    """

    loss: Callable[..., Any]
    optimizer: Any
    scheduler: Callable[[Any], Any] | None = None
    scheduler_interval: str = one_of(EPOCH, STEP, default=EPOCH)
    metrics: Mapping[str, Any] | Sequence[Any] | None = None
    sync_every: int | None = positive_int(None)
    outer_learning_rate: float | None = checked_by(_check_outer_learning_rate, None)
    outer_momentum: float | None = fraction(None)
    virtual_workers: int | None = positive_int(None)

    def __post_init__(self) -> None:
        """Check all fields, and what they mean together.

        Raises
        ------
        ValueError
            There is no outer optimizer for its settings.
        """
        super().__post_init__()
        for name in ("outer_learning_rate", "outer_momentum") if self.sync_every is None else ():
            if (value := getattr(self, name)) is not None:
                raise ValueError(
                    f"{name}={value!r} is of the optimizer that moves weights every sync_every= steps, and sync_every= "
                    f"was not passed. Pass it, or leave {name}= out."
                )

    @property
    def outer(self) -> OuterOptimizer | None:
        """Return what moves the weights where workers take steps alone; None if they do not."""
        if self.sync_every is None:
            return None
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        return OuterOptimizer(
            every=self.sync_every,
            learning_rate=OUTER_LEARNING_RATE if rate is None else float(rate),
            momentum=OUTER_MOMENTUM if momentum is None else float(momentum),
        )

    @property
    def of_task(self) -> dict[str, Any]:
        """Return fields of the task that each role process is sent."""
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
        Number of workers that share the rows; 0 for this process. Default: as many as of ``fit``.
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
    workers: int | None = whole_number(None, least=0)
    schema: FrameSchema | str | os.PathLike[str] | None = None
    client: Client | None = None
