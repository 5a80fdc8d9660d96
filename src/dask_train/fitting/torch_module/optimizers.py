"""Optimizers of a module: whose parameters they have, and how a state is loaded to the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch


def check_parameters(optimizer: Any, module: torch.nn.Module) -> None:
    """Check that an optimizer has parameters of a module only.

    Raises
    ------
    ValueError
        It has others.
    """
    known = set(map(id, module.parameters()))
    if not all(id(one) in known for group in optimizer.param_groups for one in group["params"]):
        raise ValueError(
            "optimizer has parameters that are none of the module's. Pass a factory, such as torch.optim.Adam, which "
            "makes it of the parameters that it is called with (those of a global module are others in a worker), or "
            "an optimizer of this very module's parameters."
        )


def check_scheduled(scheduler: Any, *optimizers: Any) -> None:
    """Check that a scheduler is of one of some optimizers, where it tells which one it has.

    Raises
    ------
    ValueError
        It is of another.
    """
    scheduled = getattr(scheduler, "optimizer", None)
    if hasattr(scheduled, "param_groups") and not any(_has_groups_of(one, scheduled) for one in optimizers):
        raise ValueError(
            f"scheduler made a {type(scheduler).__name__} of another optimizer than the one that it was called with, "
            "so it would change no learning rate of this training. Make it of the optimizer that it is called with."
        )


def _has_groups_of(optimizer: Any, scheduled: Any) -> bool:
    """Return whether an optimizer has all groups of another, which may be a part of it."""
    if scheduled is optimizer:
        return True
    own, others = list(optimizer.param_groups), list(scheduled.param_groups)  # which may be listed in each call
    return set(map(id, others)) <= set(map(id, own))


def load_state(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Load a ``state_dict()``, with each tensor in the dtype that it has there.

    ``load_state_dict`` casts floats to the dtype of their parameter: scalars of ``NAdam`` and ``ASGD``, and float32
    copies of weights of 16 bits. Steps would go on with other bits. A state in another form than torch's
    is left as ``load_state_dict`` loads it.
    """
    optimizer.load_state_dict(state)
    if not {"param_groups", "state"} <= state.keys():
        return
    numbers, parameters = map(_parameters, (state["param_groups"], optimizer.param_groups))
    if len(numbers) != len(parameters):
        return
    for number, parameter in zip(numbers, parameters, strict=True):
        if number in state["state"] and parameter in optimizer.state:
            optimizer.state[parameter] = _in_own_dtypes(optimizer.state[parameter], state["state"][number])


def _parameters(groups: Iterable[Mapping[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(group["params"] for group in groups))


def _in_own_dtypes(loaded: Any, saved: Any) -> Any:
    """Return a loaded value with tensors of the dtypes that were saved, on the devices where they are."""
    if isinstance(loaded, torch.Tensor) and isinstance(saved, torch.Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device, copy=True)
    if isinstance(loaded, dict) and isinstance(saved, dict):
        return {name: _in_own_dtypes(value, saved.get(name)) for name, value in loaded.items()}
    if type(loaded) in (list, tuple) and type(saved) is type(loaded) and len(saved) == len(loaded):
        return type(loaded)(map(_in_own_dtypes, loaded, saved))
    return loaded
