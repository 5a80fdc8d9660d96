"""Modules of the user's folders go to the cluster whole, also those that are imported later."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from dask_train.cli.local_modules import local_modules_travel


@pytest.fixture
def folder(tmp_path: Path):
    """A folder with modules; what is imported from there is forgotten."""
    before = set(sys.modules)
    (tmp_path / "mine_d.py").write_text(
        "import json\nimport mine_e, mine_f.inner\ndef f():\n    return mine_f.inner.g()\n"
    )
    (tmp_path / "mine_e.py").write_text("")
    (tmp_path / "mine_f").mkdir()
    (tmp_path / "mine_f" / "inner.py").write_text("def g():\n    return 42\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_folder_that_is_not_there_has_none(tmp_path):
    with local_modules_travel(str(tmp_path / "none")):
        assert sys.path[0] == str(tmp_path / "none")


@pytest.mark.parametrize("when", ["before", "within"])
def test_modules_of_the_folder_travel_and_installed_ones_do_not(folder, when, monkeypatch):
    if when == "before":
        monkeypatch.syspath_prepend(str(folder))
        importlib.import_module("mine_d")
    path = list(sys.path)
    with local_modules_travel(str(folder)):
        assert sys.path == [str(folder), *path]
        function = importlib.import_module("mine_d").f
        registered = set(cloudpickle.list_registry_pickle_by_value())
        pickled = cloudpickle.dumps(function)
    assert sys.path == path
    assert {"mine_d", "mine_e", "mine_f"} <= registered
    assert not {"json", "dask_train", "dask_train.cli"} & registered
    assert not {"mine_d", "mine_f"} & set(cloudpickle.list_registry_pickle_by_value())
    program = f"import pickle; print(pickle.loads({pickled!r})())"
    ran = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=True)
    assert ran.stdout == "42\n"
    assert pickle.loads(pickled)() == 42


def test_a_folder_of_data_does_not_take_the_place_of_a_library(folder):
    (folder / "sklearn").mkdir()
    (folder / "json.py").write_text("")
    with local_modules_travel(str(folder)):
        assert not {"sklearn", "json"} & set(cloudpickle.list_registry_pickle_by_value())
        assert "mine_e" not in sys.modules, "nothing is imported"
