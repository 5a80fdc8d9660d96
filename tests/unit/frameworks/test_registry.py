"""Adapters by name, by instance and from other packages; none brings its framework along."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dask_train.frameworks import registry
from dask_train.frameworks.base import Framework
from dask_train.frameworks.registry import find_framework


class Mine(Framework):
    name = "mine"


@pytest.fixture
def installed(monkeypatch):
    """Registers adapters as if packages that have them were installed."""

    def install(**makers):
        points = [SimpleNamespace(name=name, load=lambda maker=maker: maker) for name, maker in makers.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.ENTRY_POINTS else [])

    return install


@pytest.mark.parametrize("name", ["numpy", "tensorflow", "torch"])
def test_ours_by_name(name):
    assert find_framework(name).name == name


def test_none_is_numpy_and_an_adapter_is_itself():
    mine = Mine()
    assert type(find_framework(None)) is Framework
    assert find_framework(mine) is mine


def test_another_package_s(installed):
    installed(mine=Mine)
    assert type(find_framework("mine")) is Mine


def test_ours_can_not_be_replaced_by_another_package(installed):
    installed(torch=Mine)
    assert find_framework("torch").name == "torch"


def test_an_unknown_name_lists_those_that_there_are(installed):
    installed(mine=Mine)
    known = r"jax, jax-distributed, lightgbm, mine, numpy, .*, torchrun, xgboost\."
    with pytest.raises(ValueError, match=f"'jaxx'; there are {known}"):
        find_framework("jaxx")
    with pytest.raises(ValueError, match=r"Did you mean 'torch'\?"):
        find_framework("pytorch")


def test_what_is_registered_must_be_an_adapter(installed):
    installed(mine=dict)
    with pytest.raises(TypeError, match="registered for 'mine' makes a dict"):
        find_framework("mine")


@pytest.mark.parametrize("wrong", [3, Framework])
def test_other_types_are_refused(wrong):
    with pytest.raises(TypeError, match=f"framework is a {type(wrong).__name__}; pass a name such as 'tensorflow'"):
        find_framework(wrong)


def test_no_framework_is_imported():
    code = (
        "import sys; from dask_train.frameworks.registry import find_framework as find\n"
        "find('tensorflow'); find('torch'); assert not {'torch', 'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
