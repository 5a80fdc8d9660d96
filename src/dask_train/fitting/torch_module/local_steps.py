"""Local steps of each worker alone, and the outer steps in between that move the shared weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.data.structure import leaves
from dask_train.fitting.torch_module.global_batch import GlobalBatch, Structure
from dask_train.fitting.torch_module.gradients import GradientSums
from dask_train.fitting.torch_module.optimizers import load_state
from dask_train.fitting.torch_module.steps import Done, ModuleBatch, ModuleSteps, refilled
from dask_train.fitting.torch_module.task import OuterOptimizer


class LocalSteps:
    """Steps on a worker's own rows, whose results are gathered later.

    Parameters
    ----------
    module, loss
        Module and loss of this worker. The loss of a step is that of the worker's own rows.
    group
        Process group of all workers.
    tells_outputs
        Whether to gather outputs and targets of all rows, as metrics may need.

    Attributes
    ----------
    steps
        Steps of a single process.
    """

    def __init__(self, module: torch.nn.Module, loss: Any, group: ProcessGroup, *, tells_outputs: bool) -> None:
        self._group, self._tells_outputs = group, tells_outputs
        self.steps, self._whole = ModuleSteps(module, loss, None), GlobalBatch(group)
        self._taken: list[Done] = []

    def train(self, batch: ModuleBatch, some_row: Callable[[], ModuleBatch], step: Callable[[], Any]) -> None:
        """Take a step.

        Parameters
        ----------
        batch
            This worker's share. Without rows no weights change.
        some_row
            Return a row of the data; called by a worker whose share is empty.
        step
            Apply the gradients.
        """
        if batch.rows:
            self._note(self.steps.train(batch, some_row, step))
            return
        self.steps.clear_gradients()
        step()  # without gradients no weights change, and the schedulers of all workers stay equal
        outputs = self.steps.of_no_rows(some_row) if self._tells_outputs else None
        self._note(Done(0.0, outputs, batch.y, 0))

    def _note(self, done: Done) -> None:
        self._taken.append(done if self._tells_outputs else done._replace(outputs=None, y=None))

    def take_results(self) -> Iterator[Done]:
        """Yield the results of all workers' steps since the last call, with losses averaged over rows.

        With outputs, one result per step, with the outputs of all workers, whose weights differ; else one result for
        all steps.
        """
        waiting, self._taken = self._taken, []
        if not self._tells_outputs:
            mine = np.array([[sum(done.loss * done.rows for done in waiting), sum(done.rows for done in waiting)]])
            yield self._mean(mine)
            return
        for done in waiting:
            structure = Structure(done.outputs, done.rows)
            targets = [one for one in leaves(done.y) if isinstance(one, torch.Tensor)]
            tensors = self._whole.of([*structure.tensors, *targets], done.rows).tensors
            count = len(structure.tensors)
            mean = self._mean(np.array([[done.loss * done.rows, done.rows]]))
            yield mean._replace(outputs=structure.filled(tensors[:count]), y=refilled(done.y, tensors[count:]))

    def _mean(self, mine: np.ndarray) -> Done:
        (everyones,) = self._group.gather("losses of steps taken alone", [mine])
        total, rows = everyones.sum(0).tolist()
        return Done(total / rows if rows else float("nan"), None, None, int(rows))


class OuterSteps:
    """Outer steps, which move the shared weights by the mean difference of the workers' weights: DiLoCo [1]_.

    The outer optimizer, SGD with Nesterov momentum, takes the mean over the workers of (shared - own weights) as its
    gradient. All workers continue with the new shared weights. With a learning rate of 1 and no momentum these are
    the means of the workers' weights: local SGD.

    Parameters
    ----------
    module
        Module of this worker, with the same weights on all.
    group
        Process group of all workers.
    outer
        Settings of the outer optimizer.
    rounds
        Whether the differences travel between hosts as bfloat16. Default: false.

    References
    ----------
    .. [1] Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv:2311.08105,
       2023.
    """

    def __init__(
        self, module: torch.nn.Module, group: ProcessGroup, outer: OuterOptimizer, *, rounds: bool = False
    ) -> None:
        own = {name: one for name, one in module.named_parameters() if one.requires_grad}
        shared = {name: torch.nn.Parameter(one.detach().clone()) for name, one in own.items()}
        self._pairs = list(zip(shared.values(), own.values(), strict=True))
        self._every, self._size = outer.every, group.size
        self._sums = GradientSums(shared, group, rounds=rounds, early=False)
        self._optimizer = torch.optim.SGD(
            list(shared.values()), outer.learning_rate, outer.momentum, nesterov=outer.momentum > 0
        )

    def is_due(self, batch: int) -> bool:
        """Return whether an outer step is due after that many steps of an epoch; one is always due at its end."""
        return batch % self._every == 0

    @torch.no_grad()
    def move(self) -> None:
        """Take an outer step together with all workers, and continue with the new shared weights."""
        for shared, own in self._pairs:
            shared.grad = (shared - own) / self._size
        self._sums.sum([None] * len(self._pairs))
        self._optimizer.step()
        self._take()

    def _take(self) -> None:
        for shared, own in self._pairs:
            own.copy_(shared)

    def state(self) -> dict[str, Any]:
        """Return the state that is equal on all workers after an outer step, besides the weights."""
        return {"optimizer": self._optimizer.state_dict(), "workers": self._size}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> int:
        """Restore a state, and take the module's weights as shared ones; return the number of workers it was of."""
        load_state(self._optimizer, state["optimizer"])
        for shared, own in self._pairs:
            shared.copy_(own)
        return int(state["workers"])
