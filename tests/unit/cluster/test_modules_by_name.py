"""Functions that name modules with classes of their own."""

from __future__ import annotations

import copyreg
import subprocess
import sys
from types import ModuleType

import pytest

from dask_train.cluster.modules_by_name import register


class Odd(ModuleType):
    """As PyTorch's modules with properties."""


@pytest.fixture
def odd(monkeypatch):
    """A module of its own class, in a package."""
    monkeypatch.setattr(copyreg, "dispatch_table", dict(copyreg.dispatch_table))
    module = Odd("some_package.odd")
    monkeypatch.setitem(sys.modules, "some_package", ModuleType("some_package"))
    monkeypatch.setitem(sys.modules, "some_package.odd", module)
    return module


def test_modules_of_the_package_become_known(odd):
    register("another_package")
    assert Odd not in copyreg.dispatch_table
    register("some_package")
    rebuild, arguments = copyreg.dispatch_table[Odd](odd)
    assert rebuild(*arguments) is odd
    assert ModuleType not in copyreg.dispatch_table


LOOP = """
import torch
import math as ops

def loop():
    torch.backends.cudnn.benchmark = True
    return torch.backends.cudnn.benchmark, torch.ops.aten.relu(-torch.ones(2)).sum().item(), ops.sqrt(4.0)
"""


# Without garbage collections, which would be a quarter of the time that imports take.
QUICKLY = "import gc; gc.disable(); "


@pytest.mark.parametrize("first", ["dask_train", "torch"])
def test_a_training_loop_travels_to_who_has_pytorch(first):
    pytest.importorskip("torch")
    send = (
        f"{QUICKLY}import {first}, dask_train, sys, cloudpickle{LOOP}sys.stdout.buffer.write(cloudpickle.dumps(loop))"
    )
    sent = subprocess.run([sys.executable, "-c", send], check=True, capture_output=True).stdout
    run = f"{QUICKLY}import sys, pickle; print(pickle.load(sys.stdin.buffer)(), 'dask_train' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", run], input=sent, check=True, capture_output=True).stdout
    assert told.decode().strip() == "(True, 0.0, 2.0) False"
