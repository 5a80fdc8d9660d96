"""What processes with Keras are started with."""

from __future__ import annotations

import pytest

from dask_train.frameworks.keras.environment import backend_environment


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_other_backends_are_named_alone(backend):
    assert backend_environment(backend) == {"KERAS_BACKEND": backend}


def test_jax_may_call_back():
    assert backend_environment("jax") == {"KERAS_BACKEND": "jax", "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"}
