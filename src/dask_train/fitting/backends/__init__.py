"""What differs between Keras' backends when replicas train: one file each, found by name."""

from __future__ import annotations

from importlib import import_module

from dask_train.fitting.backends.base import Backend, Derived, Slices, StepError

# Keras' names of the backends that ``fit`` can train with.
BACKENDS = ("tensorflow", "torch", "jax")


def backend_of(name: str) -> Backend:
    """Return the backend of that name, one of :data:`BACKENDS`; imports its framework."""
    module = import_module(f"{__name__}.{name}")
    backend: Backend = module.make()
    return backend


__all__ = ["BACKENDS", "Backend", "Derived", "Slices", "StepError", "backend_of"]
