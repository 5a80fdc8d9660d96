"""Which modules are missing where this is asked."""

from __future__ import annotations

import builtins
import sys
import types

from dask_train.identity.sources import file_digests
from dask_train.worker.modules import missing_modules, other_modules

NOWHERE = "no_package_has_this_name"


def test_those_whose_package_is_not_there_are_told_as_they_were_named():
    assert missing_modules(["numpy", f"{NOWHERE}.inside", "os.path", NOWHERE]) == [f"{NOWHERE}.inside", NOWHERE]
    assert missing_modules([]) == []


def test_names_that_python_takes_for_none_are_missing():
    assert missing_modules(["", ".relative"]) == ["", ".relative"]


def test_nothing_is_imported(tmp_path, monkeypatch):
    (tmp_path / "raises_when_imported.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert missing_modules(["raises_when_imported"]) == []
    assert "raises_when_imported" not in sys.modules


def test_it_needs_nothing_of_its_module():
    """It travels by value to where this package may be what is missing."""
    alone = types.FunctionType(missing_modules.__code__, {"__builtins__": builtins})
    assert alone([NOWHERE, "sys"]) == [NOWHERE]


def test_modules_of_yours_with_other_code_are_told(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_module_here.py").write_text("value = 1")
    told = file_digests(["own_module_here", "numpy", "json"])
    python = sys.version_info[:2]
    assert list(told) == ["own_module_here"]
    assert other_modules(python, told) == []
    (tmp_path / "own_module_here.py").write_text("value = 2")
    assert other_modules(python, told) == ["own_module_here"]
    assert other_modules((3, 1), told) == [], "another Python tells nothing"
    assert other_modules(python, {NOWHERE: "x"}) == [], "what is missing is told apart"


def test_a_module_that_yours_imports_is_compared_too(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "own_package_here"
    package.mkdir()
    (package / "__init__.py").write_text("from . import nets")
    (package / "scaling.py").write_text(
        "def scaled(x):\n    from own_module_below import factor\n    return factor * x"
    )
    (package / "nets.py").write_text("import json\nimport numpy\nfrom . import scaling")
    (tmp_path / "own_module_below.py").write_text("factor = 1")
    told = file_digests(["own_package_here.nets"])
    python = sys.version_info[:2]
    modules = ["own_module_below", "own_package_here", "own_package_here.nets", "own_package_here.scaling"]
    assert sorted(told) == modules
    assert other_modules(python, told) == []
    (tmp_path / "own_module_below.py").write_text("factor = 2")
    assert other_modules(python, told) == ["own_module_below"]
    (tmp_path / "own_module_below.py").unlink()
    assert other_modules(python, told) == [], "what is missing is told where it is imported"
