"""What the logs of a step are made of, found in TensorFlow's graph of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dask_train.fitting.backends.base import Derived, flat

# Operations that call functions; what these read is not looked at.
_OPAQUE = ("StatefulPartitionedCall", "PartitionedCall", "If", "While", "StatelessIf", "StatelessWhile", "Case")


def derived_logs(graph: Any, variables: Sequence[Any]) -> Derived:
    """See :meth:`dask_train.fitting.backends.base.Backend.derived`."""
    logs = flat(graph.structured_outputs)
    handles = {id(variable.value.handle) for variable in variables}
    captured = {id(inside): outside for outside, inside in graph.captures}
    origins = {name: _Origin(log, captured, handles) for name, log in logs.items() if isinstance(log, tf.Tensor)}
    names = tuple(name for name, origin in origins.items() if origin.is_derived)
    return Derived(
        names=names,
        again=_again([logs[name] for name in names], [origins[name] for name in names]),
        raw=frozenset(name for name, origin in origins.items() if origin.is_raw),
    )


class _Origin:
    """What a tensor of a graph is computed from.

    Attributes
    ----------
    operations
        By name, in an order in which they can be computed.
    reads
        By the name of an operation that reads: what it reads, a captured tensor or the handle of a variable.
    is_derived
        Whether that is variables of metrics, and else nothing that changes.
    is_raw
        Whether no variable of a metric is among it.
    """

    def __init__(self, tensor: Any, captured: dict[int, Any], handles: set[int]) -> None:
        self.operations: dict[str, Any] = {}
        self.reads: dict[str, Any] = {}
        self._captured, self._handles = captured, handles
        self._of_metrics = self._of_others = self._is_opaque = False
        waiting, seen = [(tensor.op, False)], set()
        while waiting:
            operation, is_ready = waiting.pop()
            if is_ready:
                self.operations[operation.name] = operation
            elif operation.name not in seen:
                seen.add(operation.name)
                waiting.append((operation, True))
                if not self._ends_here(operation):
                    waiting.extend((below.op, False) for below in operation.inputs)
        self.is_derived = self._of_metrics and not self._of_others and not self._is_opaque
        self.is_raw = not self._of_metrics and not self._is_opaque

    def _ends_here(self, operation: Any) -> bool:
        """Note what an operation reads; whether it does."""
        if operation.type == "ReadVariableOp":
            variable = self._captured.get(id(operation.inputs[0]))
            is_metric = id(variable) in self._handles
            self._of_metrics, self._of_others = self._of_metrics or is_metric, self._of_others or not is_metric
            self.reads[operation.name] = variable
        elif operation.type == "Placeholder":  # of the batch, or captured
            self.reads[operation.name] = self._captured.get(id(operation.outputs[0]))
            self._of_others = self._of_others or self.reads[operation.name] is None
        else:
            self._is_opaque = self._is_opaque or operation.type in _OPAQUE
            self._of_others = self._of_others or (operation.op_def.is_stateful and operation.type not in _OPAQUE)
            return False
        return True


def _again(tensors: list[Any], origins: list[_Origin]) -> Callable[[], Sequence[Any]]:
    """Compute tensors from what the variables that they are derived from hold now."""
    operations = {name: operation for origin in origins for name, operation in origin.operations.items()}
    reads = {name: source for origin in origins for name, source in origin.reads.items()}
    wanted = tf.compat.v1.GraphDef()
    for name, operation in operations.items():
        node = wanted.node.add()
        if name in reads:
            node.name, node.op = name, "Placeholder"
            node.attr["dtype"].type = operation.outputs[0].dtype.as_datatype_enum
            continue
        node.CopyFrom(operation.node_def)
        node.attr.pop("_class", None)  # the variable that it is colocated with, which is not in this graph
        inputs = [each for each in node.input if not each.startswith("^")]  # what is to be assigned before was
        del node.input[:]
        node.input.extend(inputs)
    if tensors:
        wanted.versions.CopyFrom(tensors[0].graph.as_graph_def().versions)

    def read(name: str, source: Any) -> Any:
        if source.dtype != tf.resource:
            return source
        return tf.raw_ops.ReadVariableOp(resource=source, dtype=operations[name].outputs[0].dtype)

    @tf.function(autograph=False)
    def compute() -> Any:
        values = {f"{name}:0": read(name, source) for name, source in reads.items()}
        names = [tensor.name for tensor in tensors]
        return tf.graph_util.import_graph_def(wanted, input_map=values, return_elements=names, name="")

    return compute if tensors else tuple
