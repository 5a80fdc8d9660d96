"""Which parts of a loss are sums over the rows of a batch, as torch's graph of gradients shows.

A graph has sizes, and none of them says that it is the number of rows. So a step is tried on a batch, and on the same
rows twice: what is twice as large then, goes with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dask_train.compat.torch import reduction_of, shape_reduced, shapes_made

# What such a sum has to be multiplied with, as a tensor of that dtype.
Factor = Callable[[Any], Any]
# Which parts of a loss that is derived are sums, by the number of the derivation in its step.
Kinds = dict[int, list[bool]]


class _Multiplied(torch.autograd.Function):
    """A loss of which it is known what it has to be multiplied with, and with what it was."""

    @staticmethod
    def forward(ctx: Any, loss: Any) -> Any:  # noqa: ARG004 - torch's signature
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ARG004
        return gradients[0]


def mark_multiplied(loss: Any) -> Any:
    """Return a loss that :class:`Sums` leaves as it is."""
    return _Multiplied.apply(loss)


class Sums:
    """What steps derive, and which parts of that are sums over rows.

    Notes
    -----
    Losses are derived by ``backward`` and by ``torch.autograd.grad`` of weights. Parts are what a loss is the sum of;
    the gradient that enters one that is a sum over rows is multiplied.
    """

    def __init__(self) -> None:
        self._kinds: Kinds = {}
        self._number = 0  # of the next derivation in this step
        self._seen: list[list[Any]] | None = None  # what is derived in a step that is tried

    def begin_step(self) -> None:
        """Count derivations anew."""
        self._number = 0

    def learn(self, tried: Callable[[int], Any]) -> None:
        """See which parts are sums.

        Parameters
        ----------
        tried
            Called with how often a batch is gone through in a step: once, and twice.
        """
        derivations = []
        for times in (1, 2):
            self._seen, self._number = [], 0
            try:
                tried(times)
                derivations.append(self._seen)
            finally:
                self._seen = None
        once, twice = derivations
        self._kinds = {
            number: [_is_sum(*pair) for pair in zip(some, others, strict=True)]
            for number, (some, others) in enumerate(zip(once, twice, strict=False))
            if len(some) == len(others)
        }

    @contextmanager
    def multiplied(self, factor: Factor) -> Iterator[None]:
        """While it lasts, sums over rows count that many times in gradients by weights."""
        backward, grad = torch.autograd.backward, torch.autograd.grad

        def derived(losses: Any, derive: Callable[[], Any]) -> Any:
            handles = [node.register_prehook(_times(factor)) for node in self._sums_in(losses)]
            try:
                return derive()
            finally:
                for handle in handles:
                    handle.remove()

        def backward_of_all(tensors: Any, *args: Any, **kwargs: Any) -> None:
            derived(tensors, lambda: backward(tensors, *args, **kwargs))

        def grad_of_all(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not all(isinstance(one, torch.nn.Parameter) for one in _listed(inputs)):
                return grad(outputs, inputs, *args, **kwargs)
            return derived(outputs, lambda: grad(outputs, inputs, *args, **kwargs))

        torch.autograd.backward, torch.autograd.grad = backward_of_all, grad_of_all
        try:
            yield
        finally:
            torch.autograd.backward, torch.autograd.grad = backward, grad

    def _sums_in(self, losses: Any) -> list[Any]:
        """Return the nodes of a graph in which sums over rows end."""
        if self._seen is None and not self._kinds:
            return []
        nodes = [node for loss in _listed(losses) if loss.grad_fn is not None for node in parts(loss.grad_fn)]
        number, self._number = self._number, self._number + 1
        if self._seen is not None:
            self._seen.append([(Seen.of(node), scale) for node, scale in nodes])
            return []
        kinds = self._kinds.get(number, [])
        if len(kinds) != len(nodes):  # another step than the one that was tried
            return []
        return list(dict.fromkeys(node for (node, _), multiplies in zip(nodes, kinds, strict=True) if multiplies))


def _is_sum(once: tuple[Seen, float], twice: tuple[Seen, float]) -> bool:
    """Return whether a part of a loss is a sum over rows; one that has values by row is summed when it is derived."""
    (one, scale), (other, scale_of_twice) = once, twice
    return one.shape != other.shape or degree(one, other) + _power(scale, scale_of_twice) == 1


def _times(factor: Factor) -> Callable[[Any], Any]:
    def multiply(gradients: Any) -> Any:
        return tuple(None if one is None else one * factor(one.dtype) for one in gradients)

    return multiply


def parts(node: Any, scale: float = 1.0) -> list[tuple[Any, float]]:
    """Return the nodes of what a scalar is the sum of, and how large the numbers are with which each is multiplied."""
    name, below = _name(node), [one for one, _ in node.next_functions if one is not None]
    if name == "Sum" and len(below) == 1 and _name(below[0]) == "Stack":
        below = [one for one, _ in below[0].next_functions if one is not None]
    elif name in ("Mul", "Div") and len(below) == 1 and (operand := _operand(node)):
        scale = scale * operand if name == "Mul" else scale / operand
    elif name not in _SUMS_OF_PARTS:
        return [(node, scale)]
    if _shape(node) != () or any(_shape(one) != () for one in below):
        return [(node, scale)]
    return [part for one in below for part in parts(one, scale)]


_SUMS_OF_PARTS = frozenset({"Add", "Neg", "Sub", "Sum", "ToCopy", "Where"})


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _name(node: Any) -> str:
    """Return what an operation is called: ``Sum`` for ``SumBackward1``."""
    return str(node.name()).partition("Backward")[0]


def _shape(node: Any) -> tuple[int, ...] | None:
    """Return the shape of what an operation has made; None if it has made several."""
    shapes = shapes_made(node)
    return shapes[0] if len(shapes) == 1 else None


def _operand(node: Any) -> float | None:
    """Return how large the other operand of a product or quotient is, in the mean; None if it is derived as well."""
    derives_first = node.next_functions[0][0] is not None
    if _name(node) == "Div" and not derives_first:
        return None
    operand = getattr(node, "_saved_other" if derives_first else "_saved_self", None)
    if not isinstance(operand, torch.Tensor) or not operand.numel() or operand.requires_grad:
        return None
    return float(operand.detach().double().abs().mean())


@dataclass(frozen=True)
class Seen:
    """What is to be known of an operation once its graph is gone.

    Attributes
    ----------
    name, shape
        Of the operation, and of what it makes.
    num_reduced
        How many values it has taken in; 0 if it reduces none.
    reduction
        Of one of torch's losses: 0 for none, 1 for a mean, 2 for a sum. None for other operations.
    operand
        How large that is, in the mean, with which what is derived is multiplied, or by which it is divided.
    below
        What it is made of, as far as that is derived.
    """

    name: str
    shape: tuple[int, ...] | None
    num_reduced: int
    reduction: int | None
    operand: float | None
    below: tuple[Seen, ...]

    @classmethod
    def of(cls, node: Any, depth: int = 0) -> Seen:
        """Look at an operation, and so far down at what it is made of."""
        name = _name(node)
        below = [one for one, _ in node.next_functions if one is not None] if depth < _DEEPEST else []
        return cls(
            name=name,
            shape=_shape(node),
            num_reduced=math.prod(shape_reduced(node)) if name in ("Sum", "Mean") else 0,
            reduction=reduction_of(node),
            operand=_operand(node) if name in ("Mul", "Div") else None,
            below=tuple(cls.of(one, depth + 1) for one in below),
        )


def degree(one: Seen, other: Seen) -> float:
    """Return with which power of the number of rows a value grows, as it is of a batch and of the same rows twice.

    Its elements, where it has values by row: 0 for means, 1 for sums. NaN where that is not known, or is no single
    power.
    """
    if one.name != other.name or len(one.below) != len(other.below) or one.shape is None or other.shape is None:
        return math.nan
    below = [degree(*pair) for pair in zip(one.below, other.below, strict=True)]
    if not below or one.name not in _LOOKED_THROUGH:
        return _degree_of_end(one, other, below)
    if one.name == "Sum":
        reduced = _power(one.num_reduced, other.num_reduced) - _power(math.prod(one.shape), math.prod(other.shape))
        return below[0] + reduced
    if one.name in ("Mul", "Div"):
        others = below[1] if len(below) == 2 else _power(one.operand or 1.0, other.operand or 1.0)
        return below[0] + (others if one.name == "Mul" else -others)
    return below[0] if len(set(below)) == 1 else math.nan


def _degree_of_end(one: Seen, other: Seen, below: Sequence[float]) -> float:
    """Return the degree of an operation that is not looked through, or is the deepest that is looked at."""
    if one.shape != other.shape:  # what is computed of each row does not depend on how many they are
        return 0.0
    if one.name in _LOOKED_THROUGH:
        return math.nan
    of_rows = {None: math.nan, _MEAN: 0.0, _SUM: 1.0}.get(one.reduction, math.nan) if _is_by_row(one, other) else 0.0
    return math.nan if any(below) else of_rows


# Operations that only form what they take, or whose result is as large as all of what they take.
_FORMS = frozenset(
    (
        *("Add", "Alias", "Cat", "Clone", "Mean", "Neg", "Permute", "Squeeze", "Stack", "Sub", "T"),
        *("ToCopy", "Transpose", "UnsafeView", "Unsqueeze", "View", "Where", "Expand", "ReshapeAlias"),
    )
)
_LOOKED_THROUGH = _FORMS | {"Sum", "Mul", "Div"}
# Numbers of ``reduction`` in torch's own losses.
_MEAN, _SUM = 1, 2
# This many operations one after the other are looked at: what sums up a loss is near its end.
_DEEPEST = 20


def _power(one: float, other: float) -> float:
    """Return how often a number has doubled; means over other random numbers are about the same."""
    return float(round(math.log2(other / one))) if one > 0 and other > 0 else math.nan


def _is_by_row(one: Seen, other: Seen) -> bool:
    """Return whether an operation takes in anything that has values by row."""
    return any(each.shape != twin.shape for each, twin in zip(one.below, other.below, strict=True))
