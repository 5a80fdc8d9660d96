"""Whether what a module makes of a row depends on the other rows of its batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dask_train.data.structure import filled, leaves
from dask_train.fitting.torch_module.global_batch import Structure
from dask_train.fitting.torch_module.trials import modes_kept
from dask_train.frameworks.torch.modules import called


def several_rows(x: Any, rows: int, some_row: Callable[[], Any]) -> Any:
    """Return the inputs of several rows, for :func:`check_rows_apart`, given those of a share and of a row at hand.

    None if the share has no row, or is the row at hand alone: whatever equal rows do with each other looks alike.
    """
    if rows != 1:
        return x if rows else None
    pairs = list(zip(leaves(x), leaves(some_row()), strict=True))
    if all(torch.equal(one, other) for one, other in pairs):
        return None
    both = map(torch.cat, pairs)
    return filled(x, lambda _: next(both))


def check_rows_apart(module: torch.nn.Module, x: Any) -> None:
    """Check that a module's outputs of a row do not depend on the other rows of the batch.

    The module is run in evaluation mode, where BatchNorm does not mix rows. Nothing is checked of a module that draws
    random numbers there. The caller restores the module's state.

    Raises
    ------
    ValueError
        They do, so outputs of shares would differ from those of whole batches.
    """
    num_rows = len(leaves(x)[0])
    half = num_rows // 2

    def made_of(rows: int) -> list[torch.Tensor]:
        first = filled(x, lambda one: one[:rows].clone())  # a module may change its inputs in place
        return Structure(called(module, first), None).tensors

    with torch.no_grad(), modes_kept(module):
        module.eval()
        whole, again, part = map(made_of, (num_rows, num_rows, half))
    for one, same, first in zip(map(_reals, whole), map(_reals, again), map(_reals, part), strict=True):
        of_rows = one.shape[:1] == (num_rows,) and first.shape == (half, *one.shape[1:])
        if not of_rows or not one.numel() or not one.is_floating_point() or not torch.equal(one, same):
            continue
        expected = one[:half].double()
        largest = float(expected.nan_to_num().abs().max())
        if not torch.allclose(first.double(), expected, rtol=1e-2, atol=1e-3 * largest, equal_nan=True):
            raise ValueError(
                "What the module makes of a row depends on the other rows of its batch, so it makes something else of "
                "the workers' shares than of whole batches. Let the loss compare rows, which sees all of them, or pass "
                "workers=1."
            )


def _reals(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
