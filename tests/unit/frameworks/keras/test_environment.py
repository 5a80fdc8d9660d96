"""What processes with Keras are started with."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from dask_train.frameworks.keras.environment import backend_environment

SYNC = {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"}


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_other_backends_are_named_alone(backend, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=SimpleNamespace(jax_enable_x64=True)))
    assert backend_environment(backend) == {"KERAS_BACKEND": backend}


def test_jax_is_given_the_numbers_of_this_process(monkeypatch):
    config = SimpleNamespace(jax_enable_x64=True, jax_threefry_partitionable=False, jax_default_prng_impl="rbg")
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
    assert backend_environment("jax") == {
        "KERAS_BACKEND": "jax",
        **SYNC,
        "JAX_ENABLE_X64": "1",
        "JAX_THREEFRY_PARTITIONABLE": "0",
        "JAX_DEFAULT_PRNG_IMPL": "rbg",
    }


def test_what_this_jax_does_not_have_is_left_to_the_other_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=SimpleNamespace(jax_default_prng_impl=None)))
    assert backend_environment("jax") == {"KERAS_BACKEND": "jax", **SYNC}
    monkeypatch.delitem(sys.modules, "jax")
    assert backend_environment("jax") == {"KERAS_BACKEND": "jax", **SYNC}
