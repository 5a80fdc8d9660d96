"""``fit``: a compiled Keras model, trained on a Dask collection by many workers."""
