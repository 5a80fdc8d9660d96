"""A cell that is run again takes the place of what it started before.

A run that a cell has started with ``wait=False`` is still held by the cell's variable while the cell runs again, so
the new run would wait for the old one's room.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterable
from typing import Any

# Names a cell, and tells which execution of a cell it is.
Cell = tuple[str, int]

# What each cell has started: the execution that did, and the runs.
_started: dict[str, tuple[int, list[weakref.ref[Any]]]] = {}

# IPython numbers the file names of a terminal's cells, ipykernel names them after their content.
_TERMINAL = re.compile(r"<ipython-input-\d+-(\w+)>")


def this_cell() -> Cell | None:
    """Return the notebook's running cell, and which execution of a cell that is; None outside of IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    cell_id = ((parent or {}).get("metadata") or {}).get("cellId")  # JupyterLab and VS Code; it outlives an edit
    name = cell_id or next((name for name in _files_up() if "ipykernel_" in name or _TERMINAL.fullmatch(name)), None)
    if name is None:
        return None
    return _TERMINAL.sub(r"\1", name), int(shell.execution_count)


def _files_up() -> Iterable[str]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back  # type: ignore[assignment]


def runs_before(cell: Cell | None) -> list[Any]:
    """Return the runs that earlier executions of this cell have started and that are still referenced."""
    if cell is None or cell[0] not in _started:
        return []
    execution, runs = _started[cell[0]]
    return [] if execution == cell[1] else [run for ref in runs if (run := ref()) is not None]


def remember(cell: Cell | None, run: Any) -> None:
    """Note that this cell has started a run."""
    if cell is None:
        return
    execution, runs = _started.get(cell[0], (cell[1], []))
    _started[cell[0]] = (cell[1], [*(runs if execution == cell[1] else []), weakref.ref(run)])
