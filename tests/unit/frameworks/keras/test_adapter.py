"""How the adapter of ``fit`` loads Keras on its backend; neither is imported."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.frameworks.keras.adapter import KerasFramework

ME = RoleInfo(role="worker", rank=1, counts={"worker": 2}, host="127.0.0.1", num_threads=2)


class Inner(Framework):
    """Notes with what environment it is loaded."""

    loaded = ""

    def load(self, me):
        self.loaded = os.environ["KERAS_BACKEND"]


@pytest.fixture
def framework(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")  # as the Dask worker has it
    return KerasFramework("torch", Inner())


@pytest.fixture
def spared(monkeypatch):
    """Whether Keras has been told to do without TensorFlow."""
    found = []
    module = SimpleNamespace(spare_tensorflow=lambda: found.append("spared"))
    monkeypatch.setitem(sys.modules, "dask_train.keras_models.lazy_tensorflow", module)
    return found


def keras_on(backend):
    return SimpleNamespace(backend=SimpleNamespace(backend=lambda: backend))


def test_the_clients_backend_counts_before_anything_is_imported(framework, spared, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", keras_on("torch"))
    framework.load(ME)
    assert (framework._inner.loaded, spared) == ("torch", ["spared"])
    assert framework.import_environment["KERAS_BACKEND"] == "torch"
    assert "keras" in framework.imports


def test_keras_that_is_on_another_backend_by_now_is_told(framework, spared, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", keras_on("jax"))
    with pytest.raises(
        LaunchError, match=r"Keras runs on 'jax' for worker 1, and on 'torch' for the client\. Something"
    ):
        framework.load(ME)
    assert spared == []


def test_keras_that_is_not_there_is_told(framework, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(LaunchError, match=r"Keras can't be imported for worker 1: .*pip install keras torch\."):
        framework.load(ME)
