"""``start_tensorflow``: a TensorFlow network inside the Dask worker processes, its feeds and its board."""
