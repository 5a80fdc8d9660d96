"""What ``import dask_train`` gives, and what it does not load."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import dask_train


def test_all_names_everything_public():
    assert set(dask_train._HOMES) == set(dask_train.__all__)
    assert len(dask_train.__all__) == len(set(dask_train.__all__))
    assert set(dask_train.__all__) <= set(dir(dask_train))
    with pytest.raises(AttributeError, match="has no attribute 'fit_all'"):
        dask_train.fit_all  # noqa: B018


def test_public_modules_are_found_without_an_import_of_their_own():
    names = ("keras.global_batch", "linear_model.Ridge", "logging.MLflow", "sklearn.Incremental")
    code = "import dask_train as dt\n" + "\n".join(f"dt.{name}" for name in names)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_a_shell_completes_is_public():
    modules = {"keras", "linear_model", "logging", "sklearn", "trainers"}
    assert set(dir(dask_train)) == {*dask_train.__all__, *modules}
    assert "Ridge" in dir(dask_train.linear_model)
    assert dir(dask_train.sklearn) == sorted(dask_train.sklearn.__all__)


@pytest.mark.parametrize("name", dask_train.__all__)
def test_every_public_name_is_documented(name):
    value = getattr(dask_train, name)
    assert name == "__version__" or inspect.getdoc(value)
    if inspect.isclass(value):
        undocumented = [
            method
            for method, function in inspect.getmembers(value, inspect.isfunction)
            if not method.startswith("_") and function.__module__.startswith("dask_train") and not function.__doc__
        ]
        assert undocumented == []


def test_import_loads_no_framework_and_no_dask():
    frameworks = "('tensorflow', 'keras', 'torch', 'jax', 'dask', 'distributed', 'numpy')"
    code = f"import sys, dask_train; print([m for m in {frameworks} if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (seen.stdout.strip(), seen.stderr) == ("[]", "")


@pytest.mark.parametrize("first", ["cluster.peer", "cluster.plugin", "cluster.keras_values", "training.api", "cli", ""])
def test_whatever_is_imported_first_models_and_torch_s_modules_can_travel(first):
    code = f"""
import dask_train{"." + first if first else ", distributed"}
from dask_train.settings.after_import import _AfterImport
import sys
print([finder.module for finder in sys.meta_path if isinstance(finder, _AfterImport)], 'distributed' in sys.modules)
"""
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    early = first in ("cli", "cluster.keras_values")
    waited_for = "['torch', 'distributed'] False" if early else "['keras', 'torch', 'distributed'] True"
    assert seen.stdout.strip() == waited_for, seen.stderr
