"""The functions of the roles of ``fit`` and ``evaluate`` of modules, which import torch when they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_train.fitting.torch_module.task import ModuleTask
from dask_train.keras_models.global_batch import without_global_batch
from dask_train.trainers.common.entry import LoopObserver, LoopRole
from dask_train.trainers.common.outcome import Outcome

if TYPE_CHECKING:
    from dask_train.role.session import Session

_OUTPUTS_ARE_GATHERED = (
    "it is for Keras models. A loss of a torch module is given the outputs of all workers: compute what compares rows "
    "there, or pass workers=1."
)


@dataclass(frozen=True)
class ModuleRole(LoopRole):
    """Called with a session, it trains a module; imports torch when it is called and no earlier."""

    task: ModuleTask

    __name__ = "fit"

    def __call__(self, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
        """Train; the first worker returns the outcome, all others None."""
        from dask_train.fitting.torch_module.worker import fit_module_synchronously

        with without_global_batch(_OUTPUTS_ARE_GATHERED if session.size > 1 or self.task.num_shares else None):
            return fit_module_synchronously(self.task, session, observe)


@dataclass(frozen=True)
class EvaluationRole:
    """Called with a session, it evaluates a module on the data."""

    task: ModuleTask

    __name__ = "evaluate"

    def __call__(self, session: Session) -> Any:
        """Evaluate; the first worker returns loss and metrics by name, all others None."""
        from dask_train.fitting.torch_module.worker import evaluate_synchronously

        with without_global_batch(_OUTPUTS_ARE_GATHERED if session.size > 1 else None):
            return evaluate_synchronously(self.task, session)
