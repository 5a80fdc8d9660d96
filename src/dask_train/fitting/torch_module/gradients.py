"""Gradients of a module's parameters, summed over all workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.collectives.shared_memory import SumBuffer
from dask_train.fitting.torch_module.table_gradients import TableSums
from dask_train.fitting.torch_module.values import summed_in


class GradientSums:
    """The sum over all workers, where each has the part of the gradient that its own rows make.

    Parameters
    ----------
    parameters
        By name, in the same order on all workers.
    replicas
        All workers; None for a single process.
    tables
        Names of those whose gradients are sparse. Default: none.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        replicas: ProcessGroup | None,
        tables: Collection[str] = (),
    ) -> None:
        self._by_name, self._replicas = dict(parameters), replicas
        self._groups: list[tuple[torch.dtype, list[str], SumBuffer]] = []
        self._tables: TableSums | None = None
        if replicas is None or replicas.size == 1:
            return
        if tables:
            self._tables = TableSums({name: self._by_name[name] for name in tables}, replicas)
        by_dtype: dict[torch.dtype, list[str]] = {}
        for name, one in self._by_name.items():
            if name not in tables:
                by_dtype.setdefault(summed_in(one.dtype), []).append(name)
        for dtype, names in by_dtype.items():
            shapes = [tuple(self._by_name[name].shape) for name in names]
            numpy = torch.empty(0, dtype=dtype).numpy().dtype
            self._groups.append((dtype, names, replicas.channel([*shapes, (len(names),)], numpy)))

    @torch.no_grad()
    def sum(self, of_all: Sequence[torch.Tensor | None]) -> None:
        """Set ``grad`` of each parameter to the sum of all workers' plus what each of them has ``of_all`` rows.

        Gradients are summed where they are, so that no step asks for memory. A gradient that only other workers have
        counts as zeros here; one that no rank has stays None, so an optimizer skips its parameter.

        Raises
        ------
        ValueError
            A gradient is sparse where a dense one is summed, or the other way round.
        """
        for dtype, names, channel in self._groups:
            arrays = [self._given(name, dtype) for name in names]
            has = np.array([self._by_name[name].grad is not None for name in names], channel.dtype)
            assert self._replicas is not None
            *totals, anybody = self._replicas.sum(channel, [*arrays, has])
            for name, total, number in zip(names, totals, anybody.tolist(), strict=True):
                if number:
                    self._take(self._by_name[name], total)
        if self._tables is not None:
            self._tables.sum()
        for one, own in zip(self._by_name.values(), of_all, strict=True):
            if own is not None and one.grad is None:
                one.grad = own
            elif own is not None and one.grad.is_sparse:
                one.grad = own + one.grad  # as backward() adds them: dense, unless both are sparse
            elif own is not None:
                one.grad.add_(own)

    @staticmethod
    def _take(one: torch.nn.Parameter, total: np.ndarray) -> None:
        """Copy a sum into the gradient: an optimizer may change or keep it, and all workers share the sum's memory."""
        if one.grad is None:
            one.grad = torch.empty_like(one)
        one.grad.copy_(torch.from_numpy(total))

    def _given(self, name: str, dtype: torch.dtype) -> np.ndarray:
        one = self._by_name[name]
        if (gradient := one.grad) is None:
            return torch.zeros((), dtype=dtype).expand(one.shape).numpy()  # no memory, whatever the shape
        if gradient.layout != torch.strided:
            raise ValueError(
                f"The gradient of {name!r} is sparse. Several workers sum sparse gradients of torch.nn.Embedding and "
                "torch.nn.EmbeddingBag only: use such a layer with sparse=True, make the gradient dense, or pass "
                "workers=1."
            )
        return np.asarray(gradient.detach().to("cpu", dtype).numpy())
