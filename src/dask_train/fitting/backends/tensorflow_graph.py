"""What TensorFlow's graph of a step shows of gradients: where they come from, and what takes them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dask_train.fitting.backends.base import Slices

# Indices pass these as they are, as that input; Keras selects them from those that count from the end.
_FORMS = {"Cast": 0, "Identity": 0, "Reshape": 0, "StopGradient": 0, "SelectV2": 2}
# Operations whose result has memory of its own.
_COMPUTES = {
    *("Abs", "Add", "AddV2", "ConcatV2", "Div", "DivNoNan", "IsFinite", "L2Loss", "MatMul", "Max", "Maximum", "Mean"),
    *("Min", "Minimum", "Mul", "Neg", "Pow", "RealDiv", "ResourceScatterAdd", "ResourceScatterSub", "Shape", "Sign"),
    *("Sqrt", "Square", "SquaredDifference", "Sub", "Sum"),
}


def slices_below(indices: Any, values: Any) -> list[Slices]:
    """Return the slices of each place in which a table is looked up.

    Notes
    -----
    The gradient of a table that is looked up in several places, or is multiplied with as well, is a concatenation. In a
    graph the number of rows of a batch is not known, so a number of slices that is known does not depend on it. Run
    eagerly, only the slices themselves are known.
    """
    if isinstance(indices, tf.__internal__.EagerTensor):
        return [Slices(indices, values, alike=None)]
    source = _source(indices)
    if source.type == "ConcatV2" and values.op.type == "ConcatV2" and len(source.inputs) == len(values.op.inputs):
        pairs = zip(source.inputs[:-1], values.op.inputs[:-1], strict=True)
        return [piece for pair in pairs for piece in slices_below(*pair)]
    if values.shape[0] is None:
        return [Slices(indices, values, alike=False, distinct=source.type in ("Unique", "UniqueV2"))]
    return [Slices(indices, values, alike=True if _is_constant(source) else None)]


def may_be_kept(tensor: Any) -> bool:
    """Return whether anything but arithmetic takes a tensor.

    A variable that it is assigned to has its memory from then on.
    """
    for operation in tensor.consumers():
        if operation.type in ("Identity", "IdentityN"):
            pairs = zip(operation.inputs, operation.outputs, strict=True)
            if any(may_be_kept(output) for input_tensor, output in pairs if input_tensor is tensor):
                return True
        elif operation.type not in _COMPUTES:
            return True
    return False


def _source(tensor: Any) -> Any:
    """Return the operation that a tensor comes from, except for what only forms it."""
    operation = tensor.op
    while operation.type in _FORMS:
        operation = operation.inputs[_FORMS[operation.type]].op
    return operation


def _is_constant(operation: Any) -> bool:
    """Return whether an operation gives the same in every worker and every step."""
    if not operation.inputs:
        return bool(operation.type == "Const")
    return not operation.op_def.is_stateful and all(_is_constant(tensor.op) for tensor in operation.inputs)


def draws(graph: Any) -> bool:
    """Return whether random numbers are drawn in a graph, or in functions that it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    kinds |= {node.op for function in definition.library.function for node in function.node_def}
    return any("Random" in kind or "Multinomial" in kind for kind in kinds)
