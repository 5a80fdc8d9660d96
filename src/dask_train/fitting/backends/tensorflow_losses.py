"""Which parts of a loss are sums over the rows of a batch, as TensorFlow's graph of a step shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dask_train.fitting.backends.base import StepError

# What such a sum has to be multiplied with, as a tensor of that dtype.
Factor = Callable[[Any], Any]


@contextmanager
def sums_multiplied(factor: Factor, rows: Callable[[], int]) -> Iterator[None]:
    """While it lasts, gradients by variables are those of losses whose sums over rows are multiplied with a factor.

    Notes
    -----
    Applies where a loss, or what is added up in it, is a sum over the rows of the batch: one value a row, which is
    summed when it is derived, or a ``reduce_sum`` over all rows. In the graph of a step the number of rows is the only
    dimension that is not known. Losses of steps that run eagerly count as sums where they have values by row.
    """
    original = tf.GradientTape.gradient

    def gradient(
        self: Any,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        if output_gradients is None and _are_weights(sources):
            weights = {id(_handle(one)) for one in tf.nest.flatten(sources)}
            parts = [
                part
                for one in tf.nest.flatten(target)
                for part in (addends(one, weights=weights) if is_graph_tensor(one) else [(one, 1.0)])
            ]
            are_sums = [_is_sum(part, rows()) for part, _ in parts]
            if any(are_sums):  # else it stays as it is
                target = [part for part, _ in parts]
                output_gradients = [
                    tf.ones_like(part) * _in_dtype(times, part.dtype) * (factor(part.dtype) if is_sum else 1)
                    for (part, times), is_sum in zip(parts, are_sums, strict=True)
                ]
        return original(self, target, sources, output_gradients, unconnected_gradients)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = original


_MULTIPLIED = "loss_of_all_workers"


def mark_multiplied(loss: Any) -> Any:
    """Return a loss that :func:`sums_multiplied` leaves as it is."""
    return tf.identity(loss, _MULTIPLIED)


_OF_ALL = "rows_of_all_workers"


def of_all(rows: Any) -> Any:
    """Mark rows of all workers."""
    return tf.identity(rows, _OF_ALL)


def _is_multiplied(tensor: Any) -> bool:
    return _is_marked(tensor, _MULTIPLIED)


def _is_marked(tensor: Any, name: str) -> bool:
    return tensor.op.type == "Identity" and tensor.op.name.rpartition("/")[2].startswith(name)


def _in_dtype(times: Any, dtype: Any) -> Any:
    """Return a factor with all its digits: ``tf.cast`` makes float32 of Python's numbers first."""
    return tf.cast(times, dtype) if tf.is_tensor(times) else tf.constant(times, dtype)


def addends(tensor: Any, times: Any = 1.0, weights: Collection[int] = ()) -> list[tuple[Any, Any]]:
    """Return what a scalar is the sum of, each part with the number, or scalar, that it is multiplied with.

    Parameters
    ----------
    weights
        Ids of the handles of the variables by which it is derived; a scale by which it is multiplied reads none.
    """
    operation = tensor.op
    kind, inputs = operation.type, list(operation.inputs)
    if kind == "Sum" and inputs[0].op.type == "Pack":
        kind, inputs = "AddN", list(inputs[0].op.inputs)
    if tensor.shape.rank != 0 or any(one.shape.rank != 0 for one in inputs) or _is_multiplied(tensor):
        return [(tensor, times)]
    for place in {"Mul": (1, 0), "RealDiv": (1,)}.get(kind, ()):
        constant = tf.get_static_value(inputs[place])
        if constant is not None:
            scale: Any = float(constant)
        elif _is_scale(inputs[place], weights):  # such as that of a LossScaleOptimizer
            scale = tf.cast(inputs[place], tf.float64)
        else:
            continue
        return addends(inputs[1 - place], times * scale if kind == "Mul" else times / scale, weights)
    factors = {"Identity": [1], "Neg": [-1], "Sub": [1, -1], "AddV2": [1, 1], "AddN": [1] * len(inputs)}.get(kind)
    if not factors:
        return [(tensor, times)]
    return [part for one, own in zip(inputs, factors, strict=True) for part in addends(one, times * own, weights)]


def _is_scale(tensor: Any, weights: Collection[int]) -> bool:
    """Return whether a scalar is made of constants and of variables alone, none of which are those weights."""
    captured = {id(inside): outside for outside, inside in tensor.graph.captures}
    waiting = [tensor]
    for _ in range(_LARGEST_SCALE):
        if not waiting:
            return True
        operation = waiting.pop().op
        if operation.type == "ReadVariableOp":
            variable = captured.get(id(operation.inputs[0]))
            if not isinstance(variable, tf.__internal__.EagerTensor) or id(variable) in weights:
                return False
        elif operation.type in ("Cast", "Identity", "Mul", "RealDiv", "Reciprocal"):
            waiting.extend(operation.inputs)
        elif operation.type != "Const":
            return False
    return False


def _handle(variable: Any) -> Any:
    own = variable.value if isinstance(variable, keras.Variable) else variable
    return getattr(own, "handle", own)


def degree(tensor: Any) -> float:
    """Return with which power of the number of rows a tensor grows, if each row came twice: 0 for means, 1 for sums.

    Its elements, where it has values by row. NaN where that is not known, or is no single power.
    """
    return _Degrees().of(tensor)


class _Degrees:
    """Degrees of tensors of a graph, each worked out once, from what is computed last to what is computed first."""

    def __init__(self) -> None:
        self._known: dict[Any, float] = {}
        self._row_values = 0  # that lead to the one in hand

    def of(self, tensor: Any) -> float:
        """See :func:`degree`."""
        if tensor.ref() not in self._known:
            by_row = tensor.shape.rank is None or None in tensor.shape
            self._row_values += by_row
            rule = _Degrees._none if _is_multiplied(tensor) else _RULES.get(tensor.op.type, _Degrees._other)
            # What is computed of each row does not depend on how many they are.
            of_rows = by_row and (rule is _Degrees._other or self._row_values > _DEEPEST)
            self._known[tensor.ref()] = 0.0 if of_rows else rule(self, tensor.op)
            self._row_values -= by_row
        return self._known[tensor.ref()]

    def _inputs(self, operation: Any) -> list[float]:
        return [self.of(one) for one in operation.inputs if one.dtype not in (tf.resource, tf.string)]

    def _other(self, operation: Any) -> float:
        return math.nan if any(self._inputs(operation)) else 0.0

    def _first(self, operation: Any) -> float:
        return self.of(operation.inputs[0])

    def _sum(self, operation: Any) -> float:
        return self._first(operation) + _rows_reduced(list(operation.inputs))

    def _product(self, operation: Any) -> float:
        return sum(self._inputs(operation))

    def _matrix_product(self, operation: Any) -> float:
        contracted = operation.inputs[0].shape[-2 if operation.get_attr("transpose_a") else -1]
        if contracted is None:
            return self._product(operation) + 1.0
        return 0.0 if None in operation.outputs[0].shape else self._product(operation)

    def _ratio(self, operation: Any) -> float:
        over, under = self._inputs(operation)
        return over - under

    def _equal(self, operation: Any) -> float:
        degrees = self._inputs(operation)
        return degrees[0] if len(set(degrees)) == 1 else math.nan

    def _none(self, _: Any) -> float:
        return 0.0

    def _unknown(self, _: Any) -> float:
        return math.nan

    def _count(self, operation: Any) -> float:
        """Find the degree of a product of sizes, or of the number of values."""
        if operation.type == "Size":
            return _unknown_sizes(operation.inputs[0])
        counted = operation.inputs[0].op
        while counted.type in ("Cast", "Identity"):
            counted = counted.inputs[0].op
        if counted.type == "Pack":
            return self._product(counted)
        return _unknown_sizes(counted.inputs[0]) if counted.type == "Shape" else math.nan

    def _slice(self, operation: Any) -> float:
        """Find the degree of a slice, which may take one size of a shape."""
        source = operation.inputs[0].op
        if source.type != "Shape":
            return self._other(operation)
        shape, begin = source.inputs[0].shape, tf.get_static_value(operation.inputs[1])
        if shape.rank is None or begin is None:
            return math.nan
        return 1.0 if shape[int(begin[0])] is None else 0.0


_RULES: dict[str, Callable[[_Degrees, Any], float]] = {
    **dict.fromkeys(("Sum", "L2Loss"), _Degrees._sum),
    **dict.fromkeys(("Cast", "EnsureShape", "Identity", "Neg", "Reshape", "Squeeze", "ExpandDims"), _Degrees._first),
    **dict.fromkeys(("Add", "AddV2", "AddN", "Pack", "Sub"), _Degrees._equal),
    **dict.fromkeys(("Div", "DivNoNan", "RealDiv"), _Degrees._ratio),
    # Sums between workers are such functions; they scale what they are multiplied with to its right size.
    **dict.fromkeys(("PyFunc", "EagerPyFunc"), _Degrees._unknown),
    **dict.fromkeys(("Prod", "Size"), _Degrees._count),
    "Mean": _Degrees._first,
    "Mul": _Degrees._product,
    "MatMul": _Degrees._matrix_product,
    "StridedSlice": _Degrees._slice,
}
# Of this many operations a scale of a loss may be made.
_LARGEST_SCALE = 20
# This many values by row one after the other are looked at: what divides a loss is near its end.
_DEEPEST = 20


def _unknown_sizes(tensor: Any) -> float:
    return math.nan if tensor.shape.rank is None else float(sum(size is None for size in tensor.shape))


def _is_sum(part: Any, rows: int) -> bool:
    if not is_graph_tensor(part):
        return bool(part.shape.rank) and part.shape[0] == rows
    if _is_multiplied(part):
        return False
    owners = _rows_taken(part)
    if owners == {_ALL}:
        return False
    is_sum = part.shape[0] is None if part.shape.rank else degree(part) == 1
    if _ALL in owners and not (part.shape.rank == 0 and part.op.type == "Mean" and degree(part) == 0):
        raise StepError(
            "A loss puts rows of this worker beside rows of dt.keras.global_batch, and is no mean over its rows, so it "
            "can't be seen what it is of the global batch. Gather all that it takes, targets and weights too, and "
            "compute the loss of the gathered rows alone; or pass workers=1."
        )
    return is_sum


def has_all_rows_alone(tensor: Any) -> bool:
    """Return whether a tensor is made of gathered rows, and of no others."""
    return _rows_taken(tensor) == {_ALL}


# Whose rows a loss may take.
_OWN, _ALL = "this worker's", "all workers'"


def _rows_taken(part: Any) -> set[str]:
    """Whose rows a part of a loss takes, as the graph shows.

    What is gathered is of all workers, whatever it was gathered of. All that is put into the graph and no variable is
    of this worker.
    """
    owners, seen, waiting = set(), set(), [part]
    while waiting:
        tensor = waiting.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        if _is_marked(tensor, _OF_ALL):
            owners.add(_ALL)
        elif tensor.op.type != "Placeholder":
            waiting.extend(tensor.op.inputs)
        elif tensor.dtype != tf.resource:
            outer = _outside(tensor)
            if is_graph_tensor(outer):
                waiting.append(outer)
            elif outer is None:
                owners.add(_OWN)
    return owners


def _outside(tensor: Any) -> Any:
    """Return what a graph has captured as that placeholder; None if it is an argument."""
    return next((outer for outer, inner in tensor.graph.captures if inner is tensor), None)


def _rows_reduced(inputs: Sequence[Any]) -> float:
    """Return how often a sum runs over the rows, which are the first dimension.

    NaN where it may run over others like it.
    """
    shape = inputs[0].shape
    unknown = [place for place, size in enumerate(shape) if size is None] if shape.rank is not None else []
    if shape.rank is None or len(unknown) > 1:
        return math.nan
    axes = tf.get_static_value(inputs[1]) if len(inputs) > 1 else range(shape.rank)
    if axes is None or not shape.rank:
        return math.nan if axes is None else 0.0
    reduced = {int(axis) % shape.rank for axis in np.ravel(axes)}
    if not reduced & set(unknown):
        return 0.0
    return 1.0 if unknown == [0] else math.nan


def _are_weights(sources: Any) -> bool:
    flat = tf.nest.flatten(sources)
    return bool(flat) and all(isinstance(one, (tf.Variable, keras.Variable)) for one in flat)


def is_graph_tensor(tensor: Any) -> bool:
    """Return whether a tensor is a symbol in a graph."""
    return isinstance(tensor, tf.Tensor) and not isinstance(tensor, tf.__internal__.EagerTensor)
