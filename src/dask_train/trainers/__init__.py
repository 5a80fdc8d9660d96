"""What dask-train knows of each kind of model, and what all kinds share."""
