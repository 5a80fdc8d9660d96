"""Which runner opens which model, and what its process imports; runners are stand-ins but for a real model each."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dask_train.predicting.server.runners import imports_of, load_runner, runner_of
from dask_train.predicting.server.values import ModelParts


def parts(kind, **environment):
    return ModelParts(kind=kind, name="m", token="t", header=b"", arrays=(), opened_bytes=0, environment=environment)  # noqa: S106


@pytest.fixture
def rooms(monkeypatch):
    """Stand-ins for what runs models: they note what they were asked."""
    asked = []

    def noting(*what):
        def note(*given):
            asked.append((*what, *given))
            return what[-1]

        return note

    server = "dask_train.predicting.server"
    keras_room = SimpleNamespace(KerasRunner=noting("keras runner"), open_parts=noting("keras parts"))
    torch_room = SimpleNamespace(TorchRunner=noting("torch runner"), open_parts=noting("torch parts"))
    backends = SimpleNamespace(backend_of=lambda name: SimpleNamespace(take_threads=noting(f"threads of {name}")))
    for name, room in {
        f"{server}.keras_model": keras_room,
        f"{server}.torch_model": torch_room,
        f"{server}.keras_backends": backends,
        f"{server}.files": SimpleNamespace(open_file=noting("file")),
        "dask_train.keras_models.lazy_tensorflow": SimpleNamespace(spare_tensorflow=noting("spared")),
        "keras": SimpleNamespace(backend=SimpleNamespace(backend=lambda: "jax")),
    }.items():
        monkeypatch.setitem(sys.modules, name, room)
        package, _, attribute = name.rpartition(".")
        if package in sys.modules:
            monkeypatch.setattr(sys.modules[package], attribute, room, raising=False)
    return asked


@pytest.mark.parametrize(
    ("kind", "opener"), [("keras", ("keras parts", b"header", ["arrays"])), ("file", ("file", b"header"))]
)
def test_models_of_keras_are_opened_when_their_backend_has_its_threads(rooms, kind, opener):
    assert load_runner(kind, b"header", ["arrays"], 3) == "keras runner"
    assert rooms == [("spared",), ("threads of jax", 3), opener, ("keras runner", opener[0])]


@pytest.mark.parametrize("kind", ["torch", "torch-script", "torch-exported"])
def test_modules_of_torch_are_opened_by_their_kind(rooms, kind):
    assert load_runner(kind, b"header", ["arrays"], 3) == "torch runner"
    assert rooms == [("torch parts", kind, b"header", ["arrays"]), ("torch runner", "torch parts", 3)]


def of(*modules):
    """A model whose ancestors are of these modules."""
    base = object
    for module in modules:
        base = type("Model", (base,), {"__module__": module})
    return base()


@pytest.mark.parametrize(
    ("modules", "runner"),
    [
        (["torch.nn.modules.module", "mine"], "torch runner"),
        (["keras.src.models.model", "mine"], "keras runner"),
        (["torch.nn.modules.module", "keras.src.models.model", "mine"], "keras runner"),
    ],
    ids=["torch", "keras", "keras on torch"],
)
def test_models_of_this_process_by_their_ancestors(rooms, modules, runner):
    model = of(*modules)
    assert runner_of(model) == runner
    assert rooms == [(runner, model, None) if runner == "torch runner" else (runner, model)]


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
@pytest.mark.parametrize("kind", ["keras", "file"])
def test_a_process_with_keras_imports_its_backend_first(backend, kind):
    imports = imports_of(parts(kind, KERAS_BACKEND=backend))
    assert imports[:2] == (backend, "keras")
    assert "dask_train.predicting.server.keras_model" in imports


@pytest.mark.parametrize("kind", ["torch", "torch-script", "torch-exported"])
def test_a_process_with_torch_imports_no_keras(kind):
    imports = imports_of(parts(kind))
    assert imports[0] == "torch"
    assert "dask_train.predicting.server.torch_model" in imports
    assert not [name for name in imports if "keras" in name]


def test_to_know_runners_imports_no_framework():
    names = "{'keras', 'tensorflow', 'torch', 'jax'}"
    code = f"import sys, dask_train.predicting.server.runners; print({names} & {{*sys.modules}})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "set()\n"
