"""The child of a Dask worker in which one role runs. Nothing here imports Dask: a role starts in tenths of a second."""
