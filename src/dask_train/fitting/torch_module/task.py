"""What ``fit`` of a module sends to each role process; values that import no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
class ModuleTask(FitTask):
    """A module and how it is to be fitted; its ``header`` and ``arrays`` are a :class:`ModuleTraining`, pickled.

    Attributes
    ----------
    by_step
        Whether the scheduler steps with each step of training, instead of each epoch.
    was_compiled
        Whether the user has compiled the module with ``torch.compile``, whose code does not travel.
    """

    by_step: bool = False
    was_compiled: bool = False


def told_of(task: ModuleTask) -> dict[str, Any]:
    """Return the parameters of a training for a log: numbers and names; what is None is left out."""
    names = ("epochs", "batch_size", "steps_per_epoch", "shuffle", "seed", "validation_batch_size", "validation_steps")
    given, found = task.configuration, {name: getattr(task, name) for name in names}
    found |= {"model": given["module"]["class"], "loss": given["loss"]["name"], "scheduler": given["scheduler"]}
    found |= {f"optimizer/{name}": value for name, value in given["optimizer"]["groups"][0].items()}
    found["optimizer"] = given["optimizer"]["class"]
    return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str)}
