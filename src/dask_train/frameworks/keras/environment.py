"""What processes with Keras are started with: what they import, and variables that imports read.

Those of ``fit``, of predictions and of a search import the same, so that they share it.
"""

from __future__ import annotations

# Of ours, what these processes use once they have Keras.
_OURS = (
    "dask_train.predicting.server.process",
    "dask_train.predicting.server.keras_model",
    "dask_train.fitting.roles.worker",
)


def backend_environment(backend: str) -> dict[str, str]:
    """Variables that Keras and its backend read when they are imported, as this process has them.

    Parameters
    ----------
    backend
        Keras' name of it, with which Keras has been imported here.

    Notes
    -----
    They go before those of the Dask worker, whose environment may name another backend.
    """
    variables = {"KERAS_BACKEND": backend}
    if backend == "jax":
        variables["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = "0"  # computations that call back can hang with it (jax#25861)
    return variables


def keras_imports(backend: str) -> tuple[str, ...]:
    """Modules in the order in which they are imported, for a backend by Keras' name."""
    return (backend, "keras", *_OURS)
