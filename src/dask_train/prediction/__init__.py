"""Models that predict: as values that travel, in a process of their own, or in this one. Nothing here knows Dask."""
