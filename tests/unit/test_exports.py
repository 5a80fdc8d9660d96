"""What ``import dask_train`` gives, and what it does not load."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import dask_train


def test_all_names_everything_public():
    public = {
        name for name, value in vars(dask_train).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(dask_train.__all__)
    assert len(dask_train.__all__) == len(set(dask_train.__all__))


@pytest.mark.parametrize("name", dask_train.__all__)
def test_every_public_name_is_documented(name):
    value = getattr(dask_train, name)
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        undocumented = [
            method
            for method, function in inspect.getmembers(value, inspect.isfunction)
            if not method.startswith("_") and function.__module__.startswith("dask_train") and not function.__doc__
        ]
        assert undocumented == []


def test_import_loads_no_framework():
    code = "import sys, dask_train; print([m for m in ('tensorflow', 'keras', 'torch', 'jax') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (seen.stdout.strip(), seen.stderr) == ("[]", "")
