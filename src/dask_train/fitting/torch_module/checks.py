"""What ``fit`` refuses of modules, losses, optimizers and metrics before anything starts."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from dask_train.compat.torch import is_compiled_in_place, uncompiled
from dask_train.errors import in_words
from dask_train.fitting.torch_module.losses import BatchLoss, name_of
from dask_train.fitting.torch_module.metrics import ModuleMetrics, counts_by_itself
from dask_train.fitting.torch_module.optimizers import check_parameters, check_scheduled
from dask_train.fitting.torch_module.settings import STEP
from dask_train.fitting.torch_module.steps import ModuleSteps
from dask_train.fitting.torch_module.table_checks import check_sparse_optimizer, check_tables_together
from dask_train.fitting.torch_module.task import ModuleTraining
from dask_train.fitting.torch_module.trials import left_as_it_was, modes_kept
from dask_train.frameworks.torch.modules import (
    check_shaped,
    device_of,
    pickle_parts,
    unpickle_parts,
    unsendable_attribute,
)
from dask_train.frameworks.torch.shapes import is_of_shapes
from dask_train.inputs.data import InputData

# Of parameters, and of modules: what is called with gradients in the backward pass.
_PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def check_module(model: Any) -> torch.nn.Module:
    """Return a module that can be sent and trained; of a compiled one the one within, with the same tensors.

    Raises
    ------
    TypeError, ValueError
        It can't.
    """
    module: torch.nn.Module = uncompiled(model)
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(f"model is a {name}, whose code torch has compiled. Pass the module that it was made of.")
    if name in _WRAPPERS:
        raise TypeError(f"model is a {name}; fit shares out the work by itself. Pass the module in it: model.module.")
    check_shaped(module)
    return module


def loses_compiled_code(model: Any, *, in_process: bool) -> bool:
    """Return whether a model of ``torch.compile`` is trained without its compiled code.

    Parameters
    ----------
    in_process
        Whether it is trained in this process, where what ``module.compile()`` has made stays in use.
    """
    return uncompiled(model) is not model or (not in_process and is_compiled_in_place(model))


def check_loss(loss: Any, module: torch.nn.Module) -> None:
    """Check that it is a function or module that compares outputs and targets.

    Raises
    ------
    TypeError, ValueError
        It is no optimizer, or has parameters that the module lacks.
    """
    if isinstance(loss, type) or not callable(loss):
        kind = f"the class {loss.__name__}" if isinstance(loss, type) else f"a {type(loss).__name__}"
        raise TypeError(
            f"loss is {kind}; pass an instance, such as torch.nn.CrossEntropyLoss(), or a function of outputs and "
            "targets."
        )
    known = set(map(id, module.parameters()))
    own = list(loss.named_parameters()) if isinstance(loss, torch.nn.Module) else []
    if unknown := [name for name, one in own if one.requires_grad and id(one) not in known]:
        raise ValueError(
            f"loss has parameters of its own, {', '.join(unknown)}, which nothing would train: the optimizer is made "
            "for those of the module. Make the loss a part of the module."
        )


def check_optimizer(optimizer: Any, module: torch.nn.Module) -> Any:
    """Return the optimizer that is trained with, or one like it: made here, to see that it can be.

    Raises
    ------
    TypeError, ValueError
        It can't, or is of other parameters than the module's.
    """
    if not any(one.requires_grad for one in module.parameters()):
        raise ValueError(f"Module {type(module).__name__} has no parameters that can be trained.")
    instance = optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        if not callable(optimizer):
            raise TypeError(f"optimizer is a {type(optimizer).__name__}; {_OPTIMIZERS}")
        instance = optimizer(list(module.parameters()))
        if not isinstance(instance, torch.optim.Optimizer):
            raise TypeError(f"optimizer made a {type(instance).__name__} of the parameters; {_OPTIMIZERS}")
    elif hooks := [name for name in vars(optimizer) if name.endswith("_hooks") and vars(optimizer)[name]]:
        raise ValueError(
            f"optimizer has hooks ({', '.join(hooks)}), which don't travel with it. Pass a function that makes it of "
            "parameters, hooks and all."
        )
    hooked = [
        own for own, one in module.named_parameters() if any(getattr(one, kind, None) for kind in _PARAMETER_HOOKS)
    ]
    if hooked:
        raise ValueError(
            f"Parameter {hooked[0]!r} has a hook on its gradient, which does not travel with it, and would see the "
            "gradient of one worker's rows alone. Use a step hook of the optimizer, in the function that makes it: it "
            "is called when gradients have been summed."
        )
    if isinstance(instance, torch.optim.LBFGS):
        raise ValueError("optimizer is LBFGS, which takes several steps on a batch. Pass one that takes one.")
    if required := [own for own, one in inspect.signature(instance.step).parameters.items() if _is_required(one)]:
        raise ValueError(
            f"optimizer is a {type(instance).__name__}, whose step() can't do without {', '.join(required)}. Pass one "
            "whose step() goes by the gradients alone."
        )
    check_parameters(instance, module)
    check_sparse_optimizer(instance, module)
    return instance


def _is_required(parameter: inspect.Parameter) -> bool:
    several = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not several


_OPTIMIZERS = (
    "pass what makes a torch optimizer of parameters: torch.optim.Adam, functools.partial(torch.optim.SGD, lr=0.1), or "
    "a function; or such an optimizer of the module's parameters, which then keeps what it holds."
)


def check_scheduler(scheduler: Any, interval: Any, optimizer: Any) -> Any:
    """Return the scheduler that is made of the optimizer; None for none.

    Raises
    ------
    TypeError, ValueError
        It can't be made, is of another optimizer, or what it needs is not there at each step.
    """
    if scheduler is None:
        return None
    # It sets learning rates as soon as it is made, and the optimizer may be the user's.
    own = copy.deepcopy(optimizer)
    try:
        instance = scheduler(own) if callable(scheduler) else None
    except TypeError as error:  # such as of a class that needs more than the optimizer
        raise TypeError(
            f"scheduler can't be called with the optimizer alone: {error}. Pass its other arguments with functools."
            "partial(torch.optim.lr_scheduler.StepLR, step_size=5), for instance."
        ) from error
    if not hasattr(instance, "step") or not hasattr(instance, "state_dict"):
        raise TypeError(
            f"scheduler is a {type(scheduler).__name__}; pass what makes a torch scheduler of an optimizer, such as "
            "functools.partial(torch.optim.lr_scheduler.StepLR, step_size=5)."
        )
    if isinstance(instance, torch.optim.lr_scheduler.ReduceLROnPlateau) and interval == STEP:
        raise ValueError("ReduceLROnPlateau looks at the loss of an epoch. Leave scheduler_interval='step' out.")
    check_scheduled(instance, own, optimizer)  # one that was passed may be sent in the scheduler's function as well
    return instance


def named_metrics(metrics: Any) -> dict[str, Any]:
    """Metrics by name: that of a dict, of a function, or of a class.

    Raises
    ------
    TypeError, ValueError
        One is no metric, or two have one name.
    """
    if metrics is None:
        return {}
    if counts_by_itself(metrics) and not isinstance(metrics, type):  # a collection of torchmetrics, or a single metric
        metrics = [metrics]
    if not isinstance(metrics, Mapping | Sequence) or isinstance(metrics, str):
        raise TypeError(f"metrics is a {type(metrics).__name__}; pass a list of metrics, or a dict of them by name.")
    pairs = list(metrics.items()) if isinstance(metrics, Mapping) else [(name_of(one), one) for one in metrics]
    for name, one in pairs:
        if isinstance(one, type) or not (callable(one) or counts_by_itself(one)):
            raise TypeError(
                f"metrics has {one!r}; pass instances of torchmetrics' classes, or functions of outputs and targets."
            )
        if not isinstance(name, str) or name == "loss" or name.startswith("val_"):
            raise ValueError(f"A metric is called {name!r}; which is no name for one. Give it another.")
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"Two metrics are called {', '.join(name for name, _ in pairs)}. Pass a dict.")
    return dict(pairs)


def scores_of(metrics: Mapping[str, Any]) -> set[str] | None:
    """Return the names of all scores; None if a metric that counts by itself may give several."""
    return None if any(map(counts_by_itself, metrics.values())) else {"loss", *metrics}


def check_together(module: torch.nn.Module, workers: int) -> None:
    """Check that several workers can train a module.

    Raises
    ------
    ValueError
        They can't.
    """
    if workers <= 1:
        return
    check_tables_together(module)
    for name, part in module.named_modules():
        if hooks := [kind for kind in _BACKWARD_HOOKS if getattr(part, kind, None)]:
            raise ValueError(
                f"{name or 'The module'} has hooks ({', '.join(hooks)}) that see or change gradients, and each worker "
                "has only those of its own rows there. Use a hook of the optimizer, which sees their sums, or pass "
                "workers=1."
            )
        if isinstance(part, torch.nn.SyncBatchNorm):
            raise ValueError(
                f"{name or 'The module'} is a SyncBatchNorm, which needs a process group of torch. Use BatchNorm, "
                "which normalises each worker's share by itself, or pass workers=1."
            )


def check_rows(
    module: torch.nn.Module, loss: Any, metrics: Mapping[str, Any], data: InputData, what: str, *, trains: bool = True
) -> None:
    """Check that rows of the data go through the module, its loss and its metrics: a few of them, or rows of ones.

    An error is the data's where rows of any values would raise it. Others are left to the first batch, in the workers:
    a decomposition may need more rows, a metric rows of two classes, a density rows within its support.

    Parameters
    ----------
    what
        How errors call the data.
    trains
        Whether the loss is derived.

    Raises
    ------
    ValueError, TypeError
        They do not.
    """
    BatchLoss(loss, weighted=data.columns.weights is not None)
    if not data.columns.are_known:
        return
    description = " and ".join(f"rows of {np.dtype(each.dtype)} {each.row_shape or 'numbers'}" for each in data.columns)
    name = type(module).__name__
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        error = _error_of_shapes(module, loss, metrics, partial(_try, data=data, trains=trains))
    for one in warned:
        if re.match("Using a (target|input) size", text := str(one.message)):
            error = ValueError(text.partition(" This will")[0])
    if error is not None:
        raise ValueError(
            f"{what} does not fit module {name!r}, its loss or its metrics: it has {description}. {in_words(error)}"
        ) from error


def _error_of_shapes(
    module: torch.nn.Module, loss: Any, metrics: Mapping[str, Any], attempt: Callable[..., None]
) -> Exception | None:
    """Return the error that rows raise, where others of their shapes would raise it too; else None."""
    try:
        with left_as_it_was(module), modes_kept(module):
            attempt(module, copy_of(loss), ModuleMetrics.like(metrics, device_of(module)))
    except Exception as error:
        copies = copy_of((module, loss))  # which keep what comes of this trial; one that shares tensors shares them
        again = partial(attempt, *copies, ModuleMetrics.like(metrics, device_of(module)))
        return error if copies[0] is not module and is_of_shapes(error, again) else None
    return None


def copy_of(value: Any) -> Any:
    """Return a loss as it travels, since one that counts its calls, say, is to begin with the first batch."""
    try:
        return unpickle_parts(*pickle_parts(value))
    except Exception:  # reported when all is sent; without workers it need not travel
        return value


def _try(module: torch.nn.Module, loss: Any, counted: ModuleMetrics, *, data: InputData, trains: bool) -> None:
    assert data.columns.are_known
    here = data.sample_rows() or [np.ones((2, *each.row_shape), each.dtype) for each in data.columns]
    module.eval()
    trial = ModuleSteps(module, loss, None)
    batch = trial.packed(data.columns, [torch.from_numpy(each) for each in here])
    outputs = trial.tried(batch, derives=trains)
    counted.update(0.0, outputs, batch.y, batch.rows)


def sent(training: ModuleTraining) -> tuple[bytes, list[np.ndarray]]:
    """Return a module and what it is trained with, as they travel.

    Raises
    ------
    TypeError
        They can't; the message names what can't.
    """
    try:
        return pickle_parts(training)
    except Exception as error:
        raise TypeError(
            f"{', '.join(filter(None, map(partial(_unsendable, training), _PARTS)))} can't be sent to the workers: "
            f"{type(error).__name__}: {error}. It holds a lock, a file or a connection, or torch can't pickle it."
        ) from error


_PARTS = ("module", "loss", "optimizer", "scheduler", "metrics")


def _unsendable(training: ModuleTraining, name: str) -> str:
    part = getattr(training, name)
    try:
        pickle_parts(part)
    except Exception:
        attribute = unsendable_attribute(part) if isinstance(part, torch.nn.Module) else ""
        return f"{name} ({attribute})" if attribute else name
    return ""


def random_state() -> np.ndarray:
    """Return the state of torch's random numbers in this process."""
    state: np.ndarray = torch.get_rng_state().numpy().copy()
    return state
