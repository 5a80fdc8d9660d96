"""What becomes of one partition on its Dask worker.

These modules travel there by value (``dask_train.cluster.by_value``), so that neither the scheduler nor the Dask
workers need dask-train: they import nothing at their top but the standard library, NumPy and each other's functions,
and their arguments and answers are plain dicts. Notes on them are comments where they can be: docstrings travel with
each task.
"""

from types import FunctionType

from dask_train.collections.partition import form, kinds, plan, reading, row_arrays, text
from dask_train.collections.partition import part as part_module
from dask_train.collections.partition.part import part

__all__ = ["part"]

# Annotations travel with each function as well, and nobody reads them there.
for _module in (form, kinds, part_module, plan, reading, row_arrays, text):
    for _function in vars(_module).values():
        if isinstance(_function, FunctionType) and _function.__module__ == _module.__name__:
            _function.__annotations__ = {}
