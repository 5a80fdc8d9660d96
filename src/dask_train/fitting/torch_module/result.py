"""What ``fit`` of a module returns; the user's module takes over what was trained."""

from __future__ import annotations

from typing import Any

import torch

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.driver.result import Result
from dask_train.fitting.finite import warn_of_evaluation
from dask_train.fitting.result import FitResult, loop_result
from dask_train.fitting.torch_module.values import from_plain, set_state
from dask_train.trainers.common.outcome import Outcome


def module_trained(
    result: Result, model: Any, module: torch.nn.Module, optimizer: Any, schema: FrameSchema | None
) -> FitResult:
    """Return the result of a run; the ``module``, and an ``optimizer`` that was passed, hold what was trained.

    Where the run was ended before its first worker could tell, they stay as they are, and the history is empty.
    """
    outcome: Outcome | None = result.results["worker"][0]
    if outcome is not None and outcome.header:  # else it is the very module that was trained
        state = from_plain(outcome.header["training"], copies=False)
        set_state(module, state["module"])
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.load_state_dict(state["optimizer"])
    return loop_result(result, outcome, model, schema)


def evaluated(result: Result) -> dict[str, float]:
    """Return loss and metrics by name; warn where the loss is NaN.

    Raises
    ------
    ValueError
        The run was ended before they were known.
    """
    metrics: dict[str, float] | None = result.results["worker"][0]
    if metrics is None:
        raise ValueError(f"The evaluation was ended before it was through: {result.stop_reason}.")
    warn_of_evaluation(metrics)
    return metrics
