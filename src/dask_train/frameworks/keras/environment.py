"""What processes with Keras are started with: variables that are read by imports, before settings are applied."""

from __future__ import annotations


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
    found = {"KERAS_BACKEND": backend}
    if backend == "jax":
        found["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = "0"  # computations that call back can hang with it (jax#25861)
    return found
