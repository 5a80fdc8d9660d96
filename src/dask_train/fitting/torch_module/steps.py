"""Training and evaluation steps of a module over global batches, which the workers share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from dask_train.collectives import ProcessGroup
from dask_train.data.columns import Columns
from dask_train.data.structure import filled, leaves
from dask_train.errors import DataError
from dask_train.fitting.torch_module.agreed import norms
from dask_train.fitting.torch_module.global_batch import GlobalBatch, Structure
from dask_train.fitting.torch_module.gradients import GradientSums
from dask_train.fitting.torch_module.losses import BatchLoss, check_weight
from dask_train.fitting.torch_module.row_checks import check_rows_apart, several_rows
from dask_train.fitting.torch_module.row_sums import RowSums
from dask_train.fitting.torch_module.table_gradients import table_names
from dask_train.fitting.torch_module.trials import left_as_it_was, random_numbers_kept, values_kept
from dask_train.frameworks.torch.modules import called, cast_to_weights, device_of


class ModuleBatch(NamedTuple):
    """A worker's share of a batch, as the module and the loss take it."""

    x: Any
    y: Any
    weight: Any
    rows: int


class Done(NamedTuple):
    """Results of a step, over all rows of the global batch.

    Attributes
    ----------
    loss
        Loss of the global batch.
    outputs, y
        Outputs and targets of all rows; with one worker, in the order of the collection. None unless metrics or the
        loss needed them on all workers.
    rows
        Number of rows.
    """

    loss: float
    outputs: Any
    y: Any
    rows: int


class ModuleSteps:
    """Steps that all workers take together.

    Parameters
    ----------
    module
        This worker's module.
    loss
        The user's loss.
    group
        Process group of all workers; None for a single process.
    tells_outputs
        Whether steps return outputs and targets of all rows, as metrics may need. Default: true.
    rounds
        Whether gradients travel between hosts as bfloat16. Default: false.
    trains
        Whether there are training steps, with memory for the sums of gradients. Default: true.

    Notes
    -----
    A step of several workers has four parts:

    1. Each worker runs the module on its share.
    2. All workers gather the outputs and targets of all shares, but neither inputs nor activations.
    3. Each worker computes the loss of the global batch, derives it by the outputs of its own share, and runs the
       backward pass of its module with these derivatives.
    4. The gradients are all-reduced.

    So the gradient is that of one process whatever the loss does with a batch: means, sums, class weights, rows that
    it leaves out or compares with each other. Terms of the loss that depend on parameters directly, such as a penalty,
    are the same on all workers and count once.

    Losses of torch's own that are means or sums over rows (:class:`RowSums`) need no gather: each worker computes the
    part of its rows, and only the sums of these parts and of their weights are exchanged.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Any,
        group: ProcessGroup | None,
        *,
        tells_outputs: bool = True,
        rounds: bool = False,
        trains: bool = True,
    ) -> None:
        self._module, self._loss = module, loss
        self._is_alone = group is None or group.size == 1
        self._whole = GlobalBatch(group)
        parameters = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._trained = list(parameters.values())
        summed, tables = (parameters, table_names(module)) if trains else ({}, ())
        self._sums = GradientSums(summed, group, tables, rounds=rounds)
        self._device = device_of(module)
        self._tells_outputs = tells_outputs
        self._losses: dict[bool, BatchLoss] = {}
        self._sums_of_rows: dict[bool, RowSums | None] = {}
        self._probed: dict[bool, Structure] = {}
        self._has_checked_rows = False  # whether it was checked that outputs of a row depend on no other row

    def packed(self, columns: Columns, batch: Sequence[torch.Tensor]) -> ModuleBatch:
        """Return a share as the module takes it: floats in the module's dtype, and class indices in int64.

        Sample weights have at least float32: 16 bits can't count the rows of a batch.
        """
        rows = len(batch[0])
        x, y, weight = columns.pack([self._checked(array) for array in batch])
        x, y = (filled(one, lambda column: cast_to_weights(self._module, column)) for one in (x, y))
        if isinstance(weight, torch.Tensor) and weight.is_floating_point():
            weight = weight.to(torch.promote_types(cast_to_weights(self._module, weight[:0]).dtype, torch.float32))
        return ModuleBatch(x, _with_class_numbers(y), weight, rows)

    def train(
        self,
        batch: ModuleBatch,
        some_row: Callable[[], ModuleBatch],
        step: Callable[[], Any],
        before_all_reduce: Callable[[Done], Any] = lambda _: None,
    ) -> Done:
        """Take a step of training.

        Parameters
        ----------
        batch
            This worker's share.
        some_row
            Return a row of the data; called by a worker whose share is empty.
        step
            Apply the gradients.
        before_all_reduce
            Called with loss and outputs; with several workers before the gradient all-reduce, the last collective of
            a step. Default: no callback.
        """
        self.clear_gradients()
        if self._is_alone:
            outputs = called(self._module, batch.x)
            loss = self._loss_of(batch)(outputs, batch.y, batch.weight)
            loss.backward()
            step()
            done = Done(loss.item(), _detached(outputs), batch.y, batch.rows)
            before_all_reduce(done)
            return done
        structure = self._forward(batch, some_row, training=True)
        self._sums.begin()
        if (by_rows := self._row_sums_of(structure, batch)) is not None:
            loss, done = self._loss_of_row_sums(by_rows, structure, batch)
            if batch.rows:
                check_derived(loss)
                loss.backward()
            before_all_reduce(done)
            self._sums.sum([None] * len(self._trained))
            step()
            return done
        with torch.enable_grad():
            loss, done, inputs, own = self._loss_of_gathered(structure, batch)
            check_derived(loss)
            gradients = torch.autograd.grad(loss, [*inputs.values(), *self._trained], allow_unused=True)
        by_outputs = dict(zip(inputs, gradients, strict=False))
        pairs = [
            (tensor, by_outputs[place][own])
            for place, tensor in enumerate(structure.tensors)
            if by_outputs.get(place) is not None and tensor.requires_grad and batch.rows
        ]
        if pairs:
            torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])
        before_all_reduce(done)
        self._sums.sum(gradients[len(inputs) :])
        step()
        return done

    @torch.no_grad()
    def evaluate(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch]) -> Done:
        """Compute loss and outputs, without training."""
        if self._is_alone:
            outputs = called(self._module, batch.x)
            loss = self._loss_of(batch)(outputs, batch.y, batch.weight)
            return Done(loss.item(), outputs, batch.y, batch.rows)
        structure = self._forward(batch, some_row, training=False)
        if (by_rows := self._row_sums_of(structure, batch)) is not None:
            return self._loss_of_row_sums(by_rows, structure, batch)[1]
        return self._loss_of_gathered(structure, batch)[1]

    def of_no_rows(self, some_row: Callable[[], ModuleBatch]) -> Any:
        """Return the module's outputs for zero rows: those of one row taken twice, cut. The module stays as it was."""
        with torch.no_grad(), left_as_it_was(self._module):
            structure = Structure(called(self._module, self._repeated(some_row().x, 2)), 2)
        return structure.filled([tensor[:0] for tensor in structure.tensors])

    def tried(self, batch: ModuleBatch, *, derives: bool) -> Any:
        """Return the outputs for a batch, after computing its loss and, with ``derives``, gradients as a trial."""
        with torch.no_grad():
            outputs = called(self._module, batch.x)
        structure = Structure(outputs, None)
        inputs = [one.detach().clone() for one in structure.tensors]
        floats = [one.requires_grad_(derives) for one in inputs if is_derived(one)]
        given = _changeable(inputs) if derives else inputs
        loss = self._loss_of(batch)(structure.filled(given), batch.y, batch.weight)
        if derives:
            torch.autograd.grad(loss, [*floats, *self._trained], allow_unused=True)
        return outputs

    def in_first_worker(self) -> AbstractContextManager[None]:
        """Return a context manager for computations in the first worker alone, such as metrics."""
        return nullcontext()

    def clear_gradients(self) -> None:
        """Clear also what is left from before a parameter was frozen: optimizers would apply it in each step."""
        for parameter in self._module.parameters():
            parameter.grad = None

    def _row_sums_of(self, structure: Structure, batch: ModuleBatch) -> RowSums | None:
        """Return the loss as sums over rows, if no outputs need to be gathered; the same choice on all workers."""
        weighted = batch.weight is not None
        if weighted not in self._sums_of_rows:
            self._sums_of_rows[weighted] = RowSums.of(self._loss, weighted=weighted)
        row_sums = self._sums_of_rows[weighted]
        if (
            row_sums is None
            or self._tells_outputs
            or not row_sums.is_by_row(structure.filled(structure.tensors), batch.y)
        ):
            return None
        return row_sums

    def _loss_of_row_sums(
        self, by_rows: RowSums, structure: Structure, batch: ModuleBatch
    ) -> tuple[torch.Tensor, Done]:
        """Return this worker's part of the loss, to derive; and the results of the step. No outputs are gathered."""
        (outputs,) = structure.tensors
        values, weight = by_rows.parts(outputs, batch.y, batch.weight)
        own = float(values.detach().double().sum()), weight
        rows, (total, weighs) = self._whole.sums([outputs, batch.y], batch.rows, own)
        if not by_rows.divides:
            return values.sum(), Done(total, None, None, rows)
        if batch.weight is not None:
            check_weight(weighs)
        mean = total / weighs if weighs else math.nan  # as the mean of nothing is in torch
        return (values / weighs).sum(), Done(mean, None, None, rows)

    def _loss_of_gathered(
        self, structure: Structure, batch: ModuleBatch
    ) -> tuple[torch.Tensor, Done, dict[int, torch.Tensor], slice]:
        """Return the loss of the gathered rows, the results of the step, gathered outputs, and this worker's rows.

        The outputs are a dict by position, with those that a loss may be derived by; empty without gradients. The
        rows are a slice of the gathered rows.
        """
        others = [one for one in leaves((batch.y, batch.weight)) if isinstance(one, torch.Tensor)]
        whole = self._whole.of([*structure.tensors, *others], batch.rows)
        count = len(structure.tensors)
        outputs = whole.tensors[:count]
        inputs = {}
        if torch.is_grad_enabled():
            inputs = {n: one.requires_grad_() for n, one in enumerate(outputs) if is_derived(one)}
            outputs = _changeable(outputs)
        y, weight = refilled((batch.y, batch.weight), whole.tensors[count:])
        rows = len(whole.tensors[0])
        loss = self._loss_of(batch)(structure.filled(outputs), y, weight)
        detached = structure.filled([one.detach() for one in outputs])
        return loss, Done(loss.item(), detached, y, rows), inputs, whole.own

    def _forward(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch], *, training: bool) -> Structure:
        """Run the module on a share, which may have no rows."""
        x = None if self._has_checked_rows else several_rows(batch.x, batch.rows, lambda: some_row().x)
        if training not in self._probed or x is not None:
            self._probed[training] = self._probe(batch, some_row, x)
        if batch.rows:
            return Structure(called(self._module, batch.x), batch.rows)
        if training:
            self._run_unused_forward(some_row)
        known = self._probed[training]
        return Structure(known.filled([tensor[:0] for tensor in known.tensors]), 0)

    def _probe(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch], several: Any) -> Structure:
        """Probe the module before the first step of training, and of evaluation; each probe copies all weights.

        ``several`` is the inputs of several rows, by which to check that rows do not depend on each other; None to
        check it later, or if it was checked.
        """
        with torch.no_grad(), left_as_it_was(self._module):
            if several is not None:
                check_rows_apart(self._module, several)
                self._has_checked_rows = True
            return self._probe_outputs(batch, some_row)

    def _run_unused_forward(self, some_row: Callable[[], ModuleBatch]) -> None:
        """Call the module on some row without using the outputs, as the other workers call it on their shares.

        State that changes with each call, such as the vectors of spectral normalisation or a count of calls, stays
        equal to theirs.
        """
        with torch.no_grad(), random_numbers_kept(self._module), values_kept(norms(self._module)):
            called(self._module, self._repeated(some_row().x, 2))

    def _repeated(self, x: Any, times: int) -> Any:
        places = torch.zeros(times, dtype=torch.long, device=self._device)
        return filled(x, lambda one: one[places])

    def _probe_outputs(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch]) -> Structure:
        """Return the module's outputs for one row taken twice, after checking those of the row taken three times.

        Two calls tell outputs with one row per row of the inputs from outputs whose length is equal by chance.
        """
        x = (batch if batch.rows else some_row()).x
        twice, _ = [Structure(called(self._module, self._repeated(x, times)), times) for times in (2, 3)]
        return twice

    def _loss_of(self, batch: ModuleBatch) -> BatchLoss:
        weighted = batch.weight is not None
        if weighted not in self._losses:
            self._losses[weighted] = BatchLoss(self._loss, weighted=weighted)
        return self._losses[weighted]

    def _checked(self, column: torch.Tensor) -> torch.Tensor:
        if not isinstance(column, torch.Tensor):
            raise DataError(
                f"A column of the data is a {type(column).__name__}, and torch has tensors of numbers only.",
                change="Make numbers of it first.",
            )
        return column.to(self._device)


def is_derived(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's dtype can require gradients."""
    return tensor.is_floating_point() or tensor.is_complex()


def _changeable(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors for a loss, which may change outputs in place: torch refuses that of those it derives by."""
    return [one.clone() if one.requires_grad else one for one in tensors]


def check_derived(loss: torch.Tensor) -> None:
    """Check that a loss requires gradients.

    Raises
    ------
    ValueError
        It does not.
    """
    if not loss.requires_grad:
        raise ValueError("The loss does not depend on the module's outputs, or nothing of the module can be trained.")


def _with_class_numbers(y: Any) -> Any:
    def taken(one: torch.Tensor) -> torch.Tensor:
        is_integer = not (one.is_floating_point() or one.is_complex() or one.dtype == torch.bool)
        return one.long() if is_integer else one

    return None if y is None else filled(y, taken)


def _detached(outputs: Any) -> Any:
    structure = Structure(outputs, None)
    return structure.filled([tensor.detach() for tensor in structure.tensors])


def refilled(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return a structure of tuples, lists and dicts with its leaves replaced by these tensors; None stays."""
    left = iter(tensors)
    return filled(structure, lambda _: next(left))
