"""Keras. Importing this package imports Keras, so nothing that ``import dask_train`` runs may."""

from dask_train.frameworks.keras.serialization import model_size_bytes, model_to_parts, parts_to_model

__all__ = ["model_to_parts", "parts_to_model", "model_size_bytes"]
