"""What ``fit`` of a module sends to each role process; values that import no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dask_train.fitting.spec import SupervisedTask


@dataclass(frozen=True, kw_only=True)
class ModuleTraining:
    """A module with its loss, optimizer, scheduler and metrics; pickled as one, so that shared objects stay shared.

    Attributes
    ----------
    module : torch.nn.Module
        The user's module.
    loss
        Function or module of outputs and targets.
    optimizer
        Function that makes an optimizer of parameters, or an optimizer of the module's parameters; None for evaluation.
    scheduler
        Function that makes a scheduler of an optimizer; None for none.
    metrics
        Metrics of torchmetrics, and functions, by name.
    """

    module: Any
    loss: Any
    optimizer: Any = None
    scheduler: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OuterOptimizer:
    """Settings of the outer optimizer of local steps: SGD with Nesterov momentum on the workers' mean difference.

    Attributes
    ----------
    every
        Number of local steps between two outer steps.
    learning_rate, momentum
        Learning rate and momentum of the outer optimizer.
    """

    every: int
    learning_rate: float
    momentum: float


@dataclass(frozen=True, kw_only=True)
class ModuleTask(SupervisedTask):
    """A torch module with the settings of its training; ``header`` and ``arrays`` hold a :class:`ModuleTraining`.

    Attributes
    ----------
    by_step
        Whether the scheduler steps after each training step, not after each epoch.
    was_compiled
        Whether the user has compiled the module with ``torch.compile``, whose code can't be sent.
    outer
        Outer optimizer of local steps (``sync_every=``). Default: None, workers sum gradients in each step.
    """

    by_step: bool = False
    was_compiled: bool = False
    outer: OuterOptimizer | None = None


def logged_params(task: ModuleTask) -> dict[str, Any]:
    """Return the parameters of a training for a log: numbers and names; what is None is left out."""
    names = ("epochs", "batch_size", "steps_per_epoch", "shuffle", "seed", "validation_batch_size", "validation_steps")
    configuration, parameters = task.configuration, {name: getattr(task, name) for name in names}
    parameters |= {
        "model": configuration["module"]["class"],
        "loss": configuration["loss"]["name"],
        "scheduler": configuration["scheduler"],
    }
    parameters |= {f"optimizer/{name}": value for name, value in configuration["optimizer"]["groups"][0].items()}
    parameters["optimizer"] = configuration["optimizer"]["class"]
    if task.outer is not None:
        parameters |= {f"outer/{name}": value for name, value in asdict(task.outer).items()}
    return {name: value for name, value in parameters.items() if isinstance(value, bool | int | float | str)}
