"""Parts of Keras run when they are first used, and all else at once."""

from __future__ import annotations

import importlib
import sys

import pytest

from dask_train.keras_models import imported_later
from dask_train.keras_models.imported_later import parts_imported_later


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The modules that have run of a package with a part that is imported later."""
    folder = tmp_path / "with_parts"
    folder.mkdir()
    note = "import sys; sys.modules['modules_that_ran'].append(__name__)\n"
    (folder / "__init__.py").write_text(f"{note}from with_parts import rare, usual")
    (folder / "rare.py").write_text(f"{note}value = 3")
    (folder / "usual.py").write_text(note)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "modules_that_ran", [])
    monkeypatch.setattr(imported_later, "PARTS", frozenset({"with_parts.rare", "with_parts.missing"}))
    yield sys.modules["modules_that_ran"]
    for name in ("with_parts", "with_parts.rare", "with_parts.usual"):
        sys.modules.pop(name, None)


def test_a_part_runs_when_it_is_first_used(ran):
    finders = list(sys.meta_path)
    with parts_imported_later():
        found = importlib.import_module("with_parts")
    assert sys.meta_path == finders
    assert ran == ["with_parts", "with_parts.usual"]
    assert found.rare.value == 3
    assert importlib.import_module("with_parts.rare") is found.rare
    assert ran == ["with_parts", "with_parts.usual", "with_parts.rare"]


def test_threads_that_use_a_part_at_once_wait_for_it(ran, tmp_path, in_threads):
    waits = tmp_path / "with_parts" / "rare.py"
    waits.write_text("import time\ntime.sleep(0.1)\n" + waits.read_text())
    with parts_imported_later():
        found = importlib.import_module("with_parts")
    assert in_threads(*[lambda: found.rare.value] * 3) == [3, 3, 3]
    assert ran.count("with_parts.rare") == 1


def test_what_a_part_does_not_have_is_an_attribute_error(ran):
    with parts_imported_later():
        found = importlib.import_module("with_parts")
    for _ in range(2):
        with pytest.raises(AttributeError, match="missing"):
            found.rare.missing  # noqa: B018
    assert ran.count("with_parts.rare") == 1


def test_a_part_that_is_missing_is_missing_at_once(ran):
    with parts_imported_later(), pytest.raises(ModuleNotFoundError, match=r"with_parts\.missing"):
        importlib.import_module("with_parts.missing")
