"""Nodes of Dask's graphs. Made for Dask 2026.3 to 2026.8.

They replace the module ``dask._task_spec``. Without it graphs can't be taken apart, and rows in the client's memory
would travel inside of them.
"""

from __future__ import annotations

from dask._task_spec import DataNode, GraphNode, Task, TaskRef, convert_legacy_graph, cull

__all__ = ["DataNode", "GraphNode", "Task", "TaskRef", "convert_legacy_graph", "cull"]
