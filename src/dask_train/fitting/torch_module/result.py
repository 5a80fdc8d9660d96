"""What ``fit`` of a module returns; the user's module takes over what was trained."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.driver.result import Result, RunAccount
from dask_train.fitting.result import FitResult, ledger_of_training
from dask_train.fitting.schemas import note_schema
from dask_train.fitting.torch_module.values import opened, set_state
from dask_train.input_errors import warn_at_the_call
from dask_train.trainers.common.outcome import Outcome


def module_trained(
    result: Result, model: Any, module: torch.nn.Module, optimizer: Any, schema: FrameSchema | None
) -> FitResult:
    """The result of a run; the ``module``, and an ``optimizer`` that was passed, hold what was trained.

    Where the run was ended before its first worker could tell, they stay as they are, and the history is empty.
    """
    outcome: Outcome | None = result.results["worker"][0]
    known = {each.name: getattr(result, each.name) for each in fields(RunAccount)}
    if outcome is None:
        return FitResult(model=model, history={}, epoch=[], all_reduce_s=0.0, waiting_s=0.0, schema=schema, **known)
    if outcome.header:  # else it is the very module that was trained
        state = opened(outcome.header["training"])
        set_state(module, state["module"])
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.load_state_dict(state["optimizer"])
    note_schema(model, schema)
    known.update(ledger=ledger_of_training(result.ledger, outcome))
    for message in outcome.warnings:
        warn_at_the_call(message)
    return FitResult(
        model=model,
        history=outcome.history,
        epoch=outcome.epoch,
        all_reduce_s=outcome.all_reduce_s,
        waiting_s=outcome.waiting_s,
        best_epoch=outcome.best_epoch,
        schema=schema,
        **known,
    )


def evaluated(result: Result) -> dict[str, float]:
    """Loss and metrics by name.

    Raises
    ------
    ValueError
        The run was ended before they were known.
    """
    found: dict[str, float] | None = result.results["worker"][0]
    if found is None:
        raise ValueError(f"The evaluation was ended before it was through: {result.stop_reason}.")
    return found
