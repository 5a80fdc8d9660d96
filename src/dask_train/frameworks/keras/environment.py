"""What processes with Keras are started with, so that they compute as the process that sends them a model."""

from __future__ import annotations

import sys

# Settings of JAX that change numbers, and that it reads when it is imported.
_OF_JAX = ("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable")


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
        config = getattr(sys.modules.get("jax"), "config", None)
        values = {name: getattr(config, name, None) for name in _OF_JAX}
        told = {name: value for name, value in values.items() if value is not None}
        found |= {name.upper(): str(int(value) if isinstance(value, bool) else value) for name, value in told.items()}
    return found
