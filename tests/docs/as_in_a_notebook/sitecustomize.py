"""Lets Dask workers not import the program that starts them, as they don't import a notebook.

Python runs this before anything else where this folder is on ``PYTHONPATH``. Each Dask worker of a program would import
what the program does: with TensorFlow that is most of the time that a small program takes.
"""

from __future__ import annotations

from dask_train.compat.python import start_dask_workers_without_main

start_dask_workers_without_main()
