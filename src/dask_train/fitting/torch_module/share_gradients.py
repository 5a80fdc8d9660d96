"""Sums gradients of a module's parameters over shares, of which each worker has several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.collectives.share_sums import ShareBuffer, ShareTree
from dask_train.fitting.torch_module.values import as_array, summed_in

Gradients = list[torch.Tensor | None]


class _DtypeGroup(NamedTuple):
    """Parameters whose gradients are summed in one dtype: their positions, and memory for the sums.

    A further array of the memory has the number of gradients of each parameter.
    """

    places: list[int]
    channel: ShareBuffer


class ShareGradients:
    """Sums over all shares in the order of a :class:`ShareTree`, with the same bits for any number of workers.

    Parameters
    ----------
    parameters
        Parameters by name, in the same order on all workers.
    process_group
        Process group of all workers.
    num_shares
        Number of shares of all workers together.

    Notes
    -----
    A worker keeps one gradient of the module for each node that its shares make up: one where the number of workers is
    a power of two and divides that of shares, about the logarithm of its shares else, and one more while a share is
    computed. The workers of a host share as much memory as all of their nodes take, and once more for the sum.
    """

    def __init__(
        self, parameters: Mapping[str, torch.nn.Parameter], process_group: ProcessGroup, num_shares: int
    ) -> None:
        self._names, self._parameters = list(parameters), list(parameters.values())
        self._process_group, self._tree = process_group, ShareTree(num_shares)
        self._stack: list[tuple[range, Gradients]] = []
        self._groups: list[_DtypeGroup] = []
        by_dtype: dict[torch.dtype, list[int]] = {}
        for place, one in enumerate(self._parameters):
            by_dtype.setdefault(summed_in(one.dtype), []).append(place)
        for dtype, places in by_dtype.items():
            shapes = [*(tuple(self._parameters[place].shape) for place in places), (len(places),)]
            channel = process_group.share_channel(shapes, torch.empty(0, dtype=dtype).numpy().dtype, num_shares)
            self._groups.append(_DtypeGroup(places, channel))

    def begin(self) -> None:
        """Begin a step."""
        self._stack.clear()
        self._forget()

    @torch.no_grad()
    def add(self, share: int) -> None:
        """Take the gradient of the next share of this worker from the parameters.

        Raises
        ------
        ValueError
            A gradient is sparse.
        """
        gradients: Gradients = []
        for name, one in zip(self._names, self._parameters, strict=True):
            if one.grad is not None and one.grad.layout != torch.strided:
                raise ValueError(
                    f"The gradient of {name!r} is sparse, and virtual_workers= adds up dense ones. Make it dense, or "
                    "leave virtual_workers= out."
                )
            gradients.append(None if one.grad is None else one.grad.to(summed_in(one.dtype)))
        self._forget()
        self._tree.push(self._stack, range(share, share + 1), gradients, _added)

    @torch.no_grad()
    def sum(self, of_all: Sequence[torch.Tensor | None]) -> None:
        """Set ``grad`` of each parameter to the sum over all shares, plus its gradient in ``of_all``.

        ``of_all`` has gradients that are equal on all workers, such as those of a penalty. ``grad`` is None if neither
        a share nor ``of_all`` has a gradient.
        """
        total: Gradients
        if self._process_group.size == 1:
            ((_, total),) = self._stack
        else:
            total = [None] * len(self._parameters)
            for group in self._groups:
                nodes = [self._arrays(group, gradients) for _, gradients in self._stack]
                *sums, anybody = self._process_group.sum_shares(group.channel, nodes)
                for place, one, number in zip(group.places, sums, anybody.tolist(), strict=True):
                    total[place] = torch.from_numpy(one) if number else None
        for one, gradient, own in zip(self._parameters, total, of_all, strict=True):
            if gradient is not None:  # a copy: an optimizer may change or keep it, and workers share the sums' memory
                one.grad = torch.empty_like(one).copy_(gradient)
            if own is not None:
                one.grad = own.clone() if one.grad is None else one.grad.add_(own)  # torch gives several the same one
        self._stack.clear()

    def _forget(self) -> None:
        for one in self._parameters:
            one.grad = None

    def _arrays(self, group: _DtypeGroup, gradients: Gradients) -> list[np.ndarray]:
        own, dtype = [gradients[place] for place in group.places], group.channel.dtype
        shapes = (self._parameters[place].shape for place in group.places)
        has = np.array([one is not None for one in own], dtype)
        return [
            *(_zeros(shape, dtype) if one is None else as_array(one) for one, shape in zip(own, shapes, strict=True)),
            has,
        ]


def _zeros(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))  # no memory, whatever the shape


def _added(left: Gradients, right: Gradients) -> Gradients:
    """Add two nodes, where a gradient that one lacks counts as zeros; in the memory of the left one, if it has one."""
    sums: Gradients = []
    for one, other in zip(left, right, strict=True):
        first, second = (other, one) if one is None else (one, other)
        # Zeros are added, too, as they are between workers: they change the sign of a zero.
        sums.append(None if first is None else first.add_(0 if second is None else second))
    return sums
