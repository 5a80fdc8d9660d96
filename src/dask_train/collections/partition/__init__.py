"""What becomes of one partition on its Dask worker.

These modules travel there by value (``dask_train.cluster.by_value``), so that neither the scheduler nor the Dask
workers need dask-train: they import nothing at their top but the standard library, NumPy and each other's functions,
and their arguments and answers are plain dicts. Notes on them are comments where they can be: docstrings travel with
each task.
"""

from dask_train.collections.partition.part import part

__all__ = ["part"]
