"""Checks whether training of a module may resume from a checkpoint, and which of two scores is better."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.torch_module.losses import name_of
from dask_train.fitting.torch_module.task import ModuleTraining
from dask_train.trainers.common import comparing

# Of optimizers: how their steps are run, rather than what they do.
_LEFT_OUT = frozenset({"foreach", "fused", "capturable", "differentiable"})
# What a schedule begins with: another one is no error, as it may follow from the number of epochs, which may change.
SCHEDULE = "schedule"
# Of an optimizer: rates that schedulers keep there.
_RATES = ("max_lr", "initial_lr", "min_lr")


def configuration_of(training: ModuleTraining, optimizer: Any, scheduler: Any, columns: Columns) -> dict[str, Any]:
    """Return a description of a training in plain values, with optimizer and scheduler as they are at its beginning."""
    state = training.module.state_dict()
    tensors = [[name, str(one.dtype), list(one.shape)] for name, one in state.items() if isinstance(one, torch.Tensor)]
    configuration = {
        "module": {"class": type(training.module).__name__, "tensors": tensors},
        "loss": _describe_loss(training.loss),
        "optimizer": _describe_optimizer(optimizer),
        "scheduler": None if scheduler is None else type(scheduler).__name__,
        SCHEDULE: None if scheduler is None else _describe_scheduler(scheduler),
        "layout": [_listed(each) for each in columns.places().values()],
    }
    if columns.are_known:
        configuration["columns"] = [[one.dtype, list(one.row_shape)] for one in columns]
    return configuration


def check_same(then: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that training continues with the configuration it began with.

    Raises
    ------
    CheckpointError
        The configurations differ; the message names the differences.
    """
    if "tensors" not in (then.get("module") or {}):
        raise CheckpointError(
            "The checkpoint is of a Keras model, and this run trains a module of torch.",
            change="Pass checkpoint= another folder.",
        )
    comparing.check_same(*({**each, SCHEDULE: None} for each in (then, now)))


def as_begun(then: dict[str, Any], now: dict[str, Any], optimizer_state: Mapping[str, Any]) -> dict[str, Any]:
    """Return this call's configuration, with an optimizer that an earlier call left as it was at the beginning.

    A scheduler changes learning rates in the optimizer. So a value that is the checkpoint's own is as good as the one
    that training began with; both continue with the checkpoint's.

    Parameters
    ----------
    then, now
        The configurations of the checkpoint and of this call.
    optimizer_state
        The optimizer's ``state_dict()`` in the checkpoint.
    """
    kept = optimizer_state.get("param_groups", [])  # none if its form is the optimizer's own
    groups = [(then.get("optimizer") or {}).get("groups", []), _describe_groups(kept)]
    optimizer = now["optimizer"]
    if {len(each) for each in groups} != {len(optimizer["groups"])}:
        return now
    begun = [_group_as_begun(*each) for each in zip(*groups, optimizer["groups"], strict=True)]
    return {**now, "optimizer": {**optimizer, "groups": begun}}


def _group_as_begun(then: dict[str, Any], kept: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    continues = {name for name, value in now.items() if name in kept and value == kept[name]}
    return {name: then.get(name) if name in continues else value for name, value in now.items()}


def schedule_notice(then: dict[str, Any], now: dict[str, Any]) -> str:
    """Return a notice if the checkpoint's schedule has other arguments than the one of this call; else ``""``."""
    began, begins = then.get(SCHEDULE), now.get(SCHEDULE)
    if not began or not begins:
        return ""
    changed = comparing.changes({name: began[name] for name in begins if name in began}, begins)
    return changed and (
        f"The learning rate schedule is the checkpoint's, not that of scheduler= in this call: {changed}. For another "
        "schedule, pass the trained module to a call with another folder as checkpoint=."
    )


def mode_of(model: Any, name: str) -> str:
    """Raise: the name of a metric of torch does not tell whether less or more of it is better."""
    raise ValueError(
        f"The best checkpoint is to be known by {name!r} of {type(model).__name__}, which does not say whether less or "
        "more of it is better. Pass mode='min' or mode='max' to dt.Checkpoint."
    )


def _describe_optimizer(optimizer: Any) -> dict[str, Any]:
    return {"class": type(optimizer).__name__, "groups": _describe_groups(optimizer.param_groups)}


def _describe_groups(param_groups: Any) -> list[dict[str, Any]]:
    return [
        {
            **{name: _plain(value) for name, value in group.items() if name not in ("params", *_LEFT_OUT)},
            "params": len(group["params"]),
        }
        for group in param_groups
    ]


def _describe_scheduler(scheduler: Any) -> dict[str, Any]:
    """Return a scheduler's initial state, which has its arguments, without parts that differ between torch versions."""
    state = {str(name): _plain(value) for name, value in scheduler.state_dict().items() if name != "_last_lr"}
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", ())
    rates = {name: [_plain(group[name]) for group in groups if name in group] for name in _RATES}
    return {**{name: values for name, values in rates.items() if values}, **state}


def _describe_loss(loss: Any) -> dict[str, Any]:
    """Return the name of a loss, and its arguments."""
    description: dict[str, Any] = {"name": name_of(loss)}
    if isinstance(loss, partial):
        description["with"] = {name: _plain(value) for name, value in sorted(loss.keywords.items())}
    elif isinstance(loss, torch.nn.Module):
        own = {name: value for name, value in sorted(vars(loss).items()) if not name.startswith("_")}
        own.pop("training", None)
        description["with"] = {name: _plain(value) for name, value in {**own, **dict(loss.named_buffers())}.items()}
    return description


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else type(value).__name__


def _listed(places: Any) -> Any:
    if isinstance(places, dict):
        return {name: _listed(below) for name, below in places.items()}
    return [_listed(below) for below in places] if isinstance(places, tuple | list) else places
