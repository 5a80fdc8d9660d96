"""The seam to Dask: asking the scheduler, sending code by value, local clusters, models as Dask values."""
