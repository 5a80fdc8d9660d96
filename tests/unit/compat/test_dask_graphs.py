"""Nodes of Dask's graphs, as far as graphs are taken apart by them."""

from __future__ import annotations

from dask_train.compat.dask_graphs import DataNode, GraphNode, Task, TaskRef, convert_legacy_graph, cull


def test_a_graph_has_nodes_for_values_and_calls():
    graph = convert_legacy_graph({"a": DataNode("a", 1), "b": (max, "a", 3), "c": (min, "b", 2)})
    assert isinstance(graph["a"], DataNode)
    assert isinstance(graph["b"], Task)
    assert all(isinstance(node, GraphNode) for node in graph.values())
    assert graph["b"].dependencies == {"a"}
    assert set(cull(graph, {"b"})) == {"a", "b"}


def test_a_call_of_results_is_made_of_references():
    call = Task("sum", max, TaskRef("a"), 3)
    assert call.dependencies == {"a"}
    assert call({"a": 7}) == 7


def test_a_value_that_is_needed_once_becomes_part_of_its_task():
    value, call = DataNode("a", 7), Task("b", max, TaskRef("a"), 3)
    fused = GraphNode.fuse(value, call)
    assert (fused.key, fused.dependencies, fused()) == ("b", set(), 7)
