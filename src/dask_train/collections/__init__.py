"""Dask collections as rows: what users pass as data, and the partitions that roles are given."""

from dask_train.collections.check import check_data
from dask_train.collections.source import Source

__all__ = ["Source", "check_data"]
