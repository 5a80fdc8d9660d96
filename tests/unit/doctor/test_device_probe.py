"""What frameworks say of GPUs, each in a process of its own; programs here stand for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from dask_train.doctor import device_probe


@pytest.fixture
def answers(monkeypatch):
    """Whom to ask, by the program that each is asked with."""

    def seen(timeout_s=30.0, **programs):
        monkeypatch.setattr(device_probe, "_QUESTIONS", programs)
        return asyncio.run(device_probe.see(timeout_s))

    return seen


def test_each_framework_tells_by_itself_and_one_that_is_missing_is_left_out(answers):
    found = answers(
        json="print('a warning'); print(True)",
        csv="print(False)",
        wave="raise RuntimeError('driver too old')",
        zlib="import os; os._exit(7)",
        no_such_module="print(True)",
    )
    assert found == {
        "json": "",
        "csv": "it finds none",
        "wave": "RuntimeError: driver too old",
        "zlib": "its process ended with status 7",
    }


def test_one_that_hangs_is_not_waited_for(answers):
    assert answers(0.2, json="import time; time.sleep(60)") == {"json": "it gave no answer within 0.2 s"}


def test_torch_here_has_no_cuda():
    """The real question, where it costs least; the others are tried on a machine with a GPU."""
    torch = pytest.importorskip("torch")
    expected = "" if torch.cuda.is_available() else "it finds none"
    assert device_probe._ask("torch", 60.0) == expected


def test_only_the_standard_library_is_imported():
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("device_probe", {device_probe.__file__!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
foreign = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")]
assert not [name for name in foreign if name != "sitecustomize"], foreign
"""
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=60)
