"""Calls for the steps, layers and losses of Keras models that are trained on several workers."""

from dask_train.keras_models.global_batch import global_batch

__all__ = ["global_batch"]


def __dir__() -> list[str]:
    return __all__
