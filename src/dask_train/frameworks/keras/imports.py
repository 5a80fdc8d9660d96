"""What processes with Keras import: those of ``fit``, of predictions and of a search alike, so that they share it."""

from __future__ import annotations

# Of ours, what these processes use once they have Keras.
_OURS = (
    "dask_train.predicting.server.process",
    "dask_train.predicting.server.keras_model",
    "dask_train.fitting.roles.worker",
)


def keras_imports(backend: str) -> tuple[str, ...]:
    """Modules in the order in which they are imported, for a backend by Keras' name."""
    return (backend, "keras", *_OURS)
