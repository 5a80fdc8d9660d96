"""What is told of installed packages: found by their modules, named by their distributions, and not imported."""

from __future__ import annotations

import importlib.metadata
import pickle
import platform
import sys
from pathlib import Path

import pytest

from dask_train.cluster import installed
from dask_train.cluster.by_value import ByValue
from dask_train.cluster.installed import installed_versions


@pytest.fixture
def only(tmp_path, monkeypatch):
    """Has packages installed of which importing fails, and nothing else but what is imported already."""
    installed_versions()  # importlib imports parts of itself
    for module in ("keras", "tensorflow", "torch", "xgboost", "sklearn"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def install(module: str, distribution: str = "", version: str = "") -> None:
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise RuntimeError('it is imported')")
        if distribution:
            about = Path(tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info")
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")

    return install


def test_what_this_environment_has():
    versions = installed_versions()
    assert versions["python"] == platform.python_version()
    for name in ("dask", "distributed", "numpy"):
        assert versions[name] == importlib.metadata.version(name)
    assert versions["dask_train"] == importlib.metadata.version("dask-train")


def test_what_is_missing_is_left_out(only):
    only("torch", "torch", "9.8")
    versions = installed_versions()
    assert versions["torch"] == "9.8"
    assert {"tensorflow", "keras"}.isdisjoint(versions)


def test_a_module_that_comes_in_another_distribution(only):
    only("tensorflow", "tensorflow-cpu", "9.7")
    only("keras", "keras-nightly", "9.6")
    versions = installed_versions()
    assert (versions["tensorflow"], versions["keras"]) == ("9.7", "9.6")
    only("xgboost", "xgboost-cpu", "9.5")
    only("sklearn", "scikit-learn", "9.4")
    versions = installed_versions()
    assert (versions["xgboost"], versions["sklearn"]) == ("9.5", "9.4")


def test_a_module_of_no_known_distribution_is_there(only):
    only("tensorflow")
    assert installed_versions()["tensorflow"] == "unknown"


def test_it_is_told_where_dask_train_is_missing(monkeypatch):
    sent = pickle.dumps(ByValue(installed_versions, installed))
    for module in [name for name in sys.modules if name.partition(".")[0] == "dask_train"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert pickle.loads(sent)()["python"] == platform.python_version()
