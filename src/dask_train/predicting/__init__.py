"""``predict``, ``predict_to`` and ``evaluate``: models over the rows of a Dask collection."""
