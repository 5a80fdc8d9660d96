"""Dask collections as rows: what users pass as data, and the partitions that roles are given."""

from dask_train.collections.partitions import check_data, delayed_parts

__all__ = ["check_data", "delayed_parts"]
