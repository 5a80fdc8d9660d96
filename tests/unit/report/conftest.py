"""What tests of displays share."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a kernel of Jupyter is told to draw."""
    told: list[Any] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        told.append(data)
        return SimpleNamespace(update=lambda data, raw: told.append(data))

    shell = type("ZMQInteractiveShell", (), {})()
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return told
