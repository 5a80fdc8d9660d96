"""Lets Dask workers not import the program that starts them, as they don't import a notebook.

Python runs this before anything else where this folder is on ``PYTHONPATH``. Each Dask worker of a program would import
what the program does: with TensorFlow that is most of the time that a small program takes.
"""

from __future__ import annotations

from multiprocessing import spawn

_prepare = spawn.get_preparation_data


def _without_main(name: str) -> dict[str, object]:
    found = _prepare(name)
    for key in ("init_main_from_name", "init_main_from_path"):
        found.pop(key, None)
    return found


spawn.get_preparation_data = _without_main
