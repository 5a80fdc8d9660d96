"""A module with its loss, optimizer, scheduler and metrics, in a worker."""

from __future__ import annotations

from typing import Any

import torch

from dask_train.fitting.torch_module.metrics import ModuleMetrics
from dask_train.fitting.torch_module.optimizers import check_parameters, check_scheduled, load_state
from dask_train.fitting.torch_module.share_checks import check_device
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining
from dask_train.fitting.torch_module.values import set_state, state_of
from dask_train.frameworks.torch.modules import device_of, unpickle_parts
from dask_train.role.session import Session


class TrainingObjects:
    """The unpickled objects of a task, on this worker's device; in the client's process they stay where they are.

    Attributes
    ----------
    module, loss, optimizer, scheduler
        Objects of this worker; None if there is none.
    metrics, metrics_of_validation
        Metrics of training and of validation, each with its own state.
    """

    def __init__(self, task: ModuleTask, session: Session) -> None:
        here = task.in_process
        training: ModuleTraining = unpickle_parts(task.header["training"], task.arrays) if here is None else here.model
        self.module, self.loss = training.module, training.loss
        device = _device(session) if here is None else device_of(self.module)
        if task.num_shares:
            check_device(device)
        if here is None:
            self.module.to(device)
            if isinstance(self.loss, torch.nn.Module):
                self.loss.to(device)
        self.optimizer, self._by_step = training.optimizer, task.by_step
        if isinstance(self.optimizer, torch.optim.Optimizer):
            load_state(self.optimizer, self.optimizer.state_dict())  # to where the parameters are
        elif self.optimizer is not None:
            self.optimizer = self.optimizer(list(self.module.parameters()))
            check_parameters(self.optimizer, self.module)
        self._num_scheduled = 0  # epochs that the scheduler has seen
        self.scheduler = None if training.scheduler is None else training.scheduler(self.optimizer)
        if self.scheduler is not None:
            check_scheduled(self.scheduler, self.optimizer)
        self.metrics = ModuleMetrics.like(training.metrics, device)
        self.metrics_of_validation = ModuleMetrics.like(training.metrics, device)

    def step(self) -> None:
        """Apply the gradients, and step the scheduler if its interval is a step."""
        self.optimizer.step()
        if self.scheduler is not None and self._by_step:
            self.scheduler.step()

    def schedule(self, epoch: int, logs: dict[str, Any]) -> None:
        """Step the scheduler after an epoch, if that is its interval; ``ReduceLROnPlateau`` gets the loss.

        A scheduler that has seen the epoch already, as in a worker that was replaced within it, is not stepped again.
        """
        if self.scheduler is None or self._by_step or epoch < self._num_scheduled:
            return
        self._num_scheduled = epoch + 1
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(logs.get("val_loss", logs["loss"]))
        else:
            self.scheduler.step()

    def state(self) -> dict[str, Any]:
        """Return the state of module, optimizer and scheduler, for :meth:`restore`."""
        return {
            "module": state_of(self.module),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "num_scheduled": self._num_scheduled,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a value of :meth:`state`."""
        set_state(self.module, state["module"])
        load_state(self.optimizer, state["optimizer"])
        self._num_scheduled = state["num_scheduled"]
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])


def _device(session: Session) -> torch.device:
    """Return this worker's GPU, or the CPU if there is none; workers of a host are spread over its GPUs."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if session.meeting is None:
        raise ValueError(
            "recovery='in_place' is for workers that compute on CPUs, and this one has a GPU, whose random numbers "
            "are in no mirror. Pass gpus=0, or leave recovery= out."
        )
    hosts, _ = session.meeting
    return torch.device("cuda", hosts.group_of(session.rank).index(session.rank) % torch.cuda.device_count())
