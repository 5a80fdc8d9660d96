"""Modules beside a test that the processes of a cluster can't import, so that what is in them travels by value."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def loaded(beside: str, name: str) -> Any:
    """Return the module ``name`` of a file's folder, which stays out of ``sys.modules``.

    Parameters
    ----------
    beside
        The ``__file__`` of the test.
    name
        Of the module.
    """
    found = importlib.util.spec_from_file_location(name, Path(beside).with_name(f"{name}.py"))
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # where dataclasses look for it
    found.loader.exec_module(module)
    del sys.modules[name]
    return module
