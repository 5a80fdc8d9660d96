"""Steps over global batches that are cut into a fixed number of shares, whatever the number of workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from dask_train.collectives import ProcessGroup
from dask_train.data.structure import filled
from dask_train.fitting.torch_module.global_batch import SharesBatch, Structure
from dask_train.fitting.torch_module.losses import check_weight
from dask_train.fitting.torch_module.random_streams import RandomStreams
from dask_train.fitting.torch_module.row_sums import RowSums
from dask_train.fitting.torch_module.share_checks import check_keeps_nothing
from dask_train.fitting.torch_module.share_gradients import ShareGradients
from dask_train.fitting.torch_module.shares import ALL, FIRST, ModuleShares
from dask_train.fitting.torch_module.steps import Done, ModuleBatch, ModuleSteps, check_derived
from dask_train.frameworks.torch.modules import called


class ShareSteps(ModuleSteps):
    """A :class:`ModuleSteps` with the same bits for any number of workers.

    Each worker runs the module on its shares one after the other, each with random streams and buffers of its own, and
    adds up their gradients. Computations over all rows are repeated by each worker, on rows in the same order.

    Parameters
    ----------
    module, loss, group, tells_outputs
        As in :class:`ModuleSteps`.
    shares
        Shares of this worker.
    global_rows
        Return the number of rows of the current global batch.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Any,
        group: ProcessGroup,
        *,
        tells_outputs: bool,
        shares: ModuleShares,
        global_rows: Callable[[], int],
    ) -> None:
        super().__init__(module, loss, None, tells_outputs=tells_outputs)
        self._whole: SharesBatch = SharesBatch(group)
        self._shares, self._global_rows = shares, global_rows
        parameters = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._gradients = ShareGradients(parameters, group, shares.num_shares)

    def train(
        self,
        batch: ModuleBatch,
        some_row: Callable[[], ModuleBatch],
        step: Callable[[], Any],
        before_all_reduce: Callable[[Done], Any] = lambda _: None,
    ) -> Done:
        """Take a step of training, as :meth:`ModuleSteps.train` does."""
        parts = self._cut(batch)
        self.clear_gradients()
        self._gradients.begin()
        structures = self._forward_shares(parts, some_row, training=True)
        if (by_rows := self._row_sums_of(structures[0], parts[0])) is not None:
            losses, done = self._losses_of_shares(by_rows, structures, parts)
            for share, part, loss in zip(self._shares.mine, parts, losses, strict=True):
                if part.rows:
                    with self._shares.passing(share):
                        check_derived(loss)
                        loss.backward()
                self._gradients.add(share)
            common_gradients: Sequence[torch.Tensor | None] = [None] * len(self._trained)
        else:
            self._shares.draw(ALL)
            with torch.enable_grad():
                whole, done, inputs, own = self._loss_of_gathered(self._whole.joined(structures), batch)
                check_derived(whole)
                derived = torch.autograd.grad(whole, [*inputs.values(), *self._trained], allow_unused=True)
            common_gradients = derived[len(inputs) :]
            ours = {place: one[own] for place, one in zip(inputs, derived, strict=False) if one is not None}
            self._backward_shares(structures, parts, ours)
        self._shares.draw(ALL)
        before_all_reduce(done)
        self._gradients.sum(common_gradients)
        step()
        return done

    @torch.no_grad()
    def evaluate(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch]) -> Done:
        """Compute loss and outputs, without training."""
        parts = self._cut(batch)
        structures = self._forward_shares(parts, some_row, training=False)
        self._shares.draw(ALL)
        if (by_rows := self._row_sums_of(structures[0], parts[0])) is not None:
            return self._losses_of_shares(by_rows, structures, parts)[1]
        return self._loss_of_gathered(self._whole.joined(structures), batch)[1]

    @contextmanager
    def in_first_worker(self) -> Iterator[None]:
        """Draw from the random stream of the first worker's own computations inside the context."""
        self._shares.draw(FIRST)
        try:
            yield
        finally:
            self._shares.draw(ALL)

    def _cut(self, batch: ModuleBatch) -> list[ModuleBatch]:
        """Return the shares of this worker, in memory of torch: its alignment may change the bits of products."""
        rows, shares = self._global_rows(), self._shares
        edges = [share * rows // shares.num_shares for share in (*shares.mine, shares.mine.stop)]
        assert edges[-1] - edges[0] == batch.rows

        def part(value: Any, start: int, stop: int) -> Any:
            return filled(value, lambda one: one[start - edges[0] : stop - edges[0]].clone())

        return [
            ModuleBatch(
                part(batch.x, start, stop), part(batch.y, start, stop), part(batch.weight, start, stop), stop - start
            )
            for start, stop in pairwise(edges)
        ]

    def _forward_shares(
        self, parts: Sequence[ModuleBatch], some_row: Callable[[], ModuleBatch], *, training: bool
    ) -> list[Structure]:
        structures = []
        for share, part in zip(self._shares.mine, parts, strict=True):
            with self._shares.passing(share):
                structures.append(self._forward(part, some_row, training=training))
        return structures

    def _probe(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch], several: Any) -> Structure:
        """Probe the module without a trace in random streams, as the number of probes depends on that of workers."""
        streams = RandomStreams.current().copied()
        try:
            if not self._probed:
                x = self._repeated((batch if batch.rows else some_row()).x, 2)
                check_keeps_nothing(self._module, lambda: called(self._module, x))
            return super()._probe(batch, some_row, several)
        finally:
            streams.set()

    def _losses_of_shares(
        self, by_rows: RowSums, structures: Sequence[Structure], parts: Sequence[ModuleBatch]
    ) -> tuple[list[torch.Tensor], Done]:
        """Return the part of each of this worker's shares in the loss, to derive; and the results of the step."""
        row_losses, own, tensors = [], [], []
        for each, part in zip(structures, parts, strict=True):
            (outputs,) = each.tensors
            values, weight = by_rows.parts(outputs, part.y, part.weight)
            row_losses.append(values)
            own.append((float(values.detach().double().sum()), weight))
            tensors.append([outputs, part.y])
        rows, (total, weighs) = self._whole.sums_of_shares(tensors, [part.rows for part in parts], own)
        if not by_rows.divides:
            return [values.sum() for values in row_losses], Done(total, None, None, rows)
        if parts[0].weight is not None:
            check_weight(weighs)
        mean = total / weighs if weighs else math.nan
        return [(values / weighs).sum() for values in row_losses], Done(mean, None, None, rows)

    def _backward_shares(
        self, structures: Sequence[Structure], parts: Sequence[ModuleBatch], ours: dict[int, torch.Tensor]
    ) -> None:
        """Run the backward pass of each share, given the derivatives of the loss by the outputs of all shares."""
        first = 0
        for share, each, part in zip(self._shares.mine, structures, parts, strict=True):
            rows = slice(first, first := first + part.rows)
            pairs = [
                (tensor, ours[place][rows].clone())
                for place, tensor in enumerate(each.tensors)
                if place in ours and tensor.requires_grad and part.rows
            ]
            if pairs:
                with self._shares.passing(share):
                    torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])
            self._gradients.add(share)
