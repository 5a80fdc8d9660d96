"""What ``fit`` refuses of layers that look up rows of a table, and of optimizers of their sparse gradients."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from dask_train.errors import in_words
from dask_train.fitting.torch_module.table_gradients import looks_up, table_names


def check_sparse_optimizer(optimizer: torch.optim.Optimizer, module: torch.nn.Module) -> None:
    """Check that an optimizer takes the sparse gradients of a module's tables and its dense ones.

    A copy of it, with the first row of each parameter, takes a step.

    Raises
    ------
    ValueError
        It does not.
    """
    tables = table_names(module)
    if not tables:
        return
    try:
        _try(optimizer, {id(module.get_parameter(name)) for name in tables})
    except Exception as error:
        if "sparse" in (message := in_words(error)).lower():  # others come of the trial: an optimizer of several, say
            raise ValueError(
                f"optimizer is a {type(optimizer).__name__}, which does not take what the module's gradients are: that "
                f"of {tables[0]!r} is sparse, as its layer has sparse=True. {message.rstrip('.')}. SGD and Adagrad "
                "without weight_decay take both kinds, SparseAdam takes sparse ones alone; or leave sparse=True out."
            ) from error


def _try(optimizer: torch.optim.Optimizer, tables: set[int]) -> None:
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    known: dict[int, Any] = {}
    for one in parameters:
        first = _first_row(one)
        known[id(one)] = stands_in = torch.nn.Parameter(first)
        stands_in.grad = torch.zeros_like(first) if one.requires_grad else None
        if id(one) in tables:
            index = torch.zeros((1, 1), dtype=torch.long, device=first.device)
            stands_in.grad = torch.sparse_coo_tensor(
                index, torch.zeros_like(first), first.shape, is_coalesced=True, check_invariants=False
            )
        for value in optimizer.state.get(one, {}).values():
            if isinstance(value, torch.Tensor) and value.shape == one.shape:
                known[id(value)] = _first_row(value)
    twin = copy.deepcopy(optimizer, known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin.step()


def _first_row(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy, without the other rows if there is an axis of rows; of sparse momentum one without values."""
    if tensor.is_sparse:
        return torch.zeros((1, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device).to_sparse(1)
    return (tensor.detach()[:1] if tensor.ndim else tensor.detach()).clone()


def check_tables_together(module: torch.nn.Module) -> None:
    """Check that several workers can train the layers that look up rows.

    Raises
    ------
    ValueError
        They can't.
    """
    tables = {id(module.get_parameter(name)): name for name in table_names(module)}
    for path, part in module.named_modules():
        name = path or "The module"
        if getattr(part, "max_norm", None) is not None:
            raise ValueError(
                f"{name} has max_norm={part.max_norm:g}, which changes weights of rows as they are looked up, and each "
                "worker looks up others. Leave max_norm out, or pass workers=1."
            )
        if getattr(part, "scale_grad_by_freq", False) is True:
            raise ValueError(
                f"{name} has scale_grad_by_freq=True, and each worker knows only how often its own rows look up an "
                "index. Leave scale_grad_by_freq out, or pass workers=1."
            )
        for own in part.parameters(recurse=False):
            if id(own) in tables and not (looks_up(part) and part.sparse):
                raise ValueError(
                    f"{name} has the table {tables[id(own)]!r}, too, whose own layer has sparse=True, so its gradient "
                    "is dense after all. Leave sparse=True out, or pass workers=1."
                )
