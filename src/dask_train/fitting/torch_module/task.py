"""What ``fit`` of a module sends to each role process; values that import no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dask_train.fitting.spec import FitTask


@dataclass(frozen=True, kw_only=True)
class ModuleTraining:
    """A module, and with what it is trained; pickled as one, so that what they share stays shared.

    Attributes
    ----------
    module : torch.nn.Module
        The user's.
    loss
        A function or module of outputs and targets.
    optimizer
        A factory from parameters, or an optimizer of the module's parameters; None if nothing is trained.
    scheduler
        A factory from an optimizer; None for none.
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
    """What moves the weights that workers share, where each takes steps of its own in between.

    Attributes
    ----------
    every
        Number of steps.
    learning_rate, momentum
        Of SGD with Nesterov's momentum.
    """

    every: int
    learning_rate: float
    momentum: float


@dataclass(frozen=True, kw_only=True)
class ModuleTask(FitTask):
    """A module and how it is to be fitted; its ``header`` and ``arrays`` are a :class:`ModuleTraining`, pickled.

    Attributes
    ----------
    by_step
        Whether the scheduler steps with each step of training, instead of each epoch.
    was_compiled
        Whether the user has compiled the module with ``torch.compile``, whose code does not travel.
    outer
        What moves the weights, where workers take steps alone. Default: None, they sum gradients in each step.
    """

    by_step: bool = False
    was_compiled: bool = False
    outer: OuterOptimizer | None = None


def told_of(task: ModuleTask) -> dict[str, Any]:
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
