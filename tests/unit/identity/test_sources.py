"""Sources of the user's modules, and of those that they import."""

from __future__ import annotations

import importlib
import sys
import zipfile

import numpy as np
import pytest

import dask_train
from dask_train.identity.sources import Sources

FILES = {
    "top.py": "import json\nfrom package.nets import Net\n\ndef late():\n    import only_late\n    return only_late\n",
    "package/__init__.py": "",
    "package/nets.py": "from .layers import scale\n\nclass Net:\n    def call(self, x):\n        return scale(x)\n",
    "package/layers.py": "from spaced.inner import FACTOR\n\ndef scale(x):\n    return FACTOR * x\n",
    "spaced/inner.py": "FACTOR = 2\n",
    "only_late.py": "VALUE = 1\n",
    "apart.py": "VALUE = 1\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"top", "package", "spaced", "only_late", "apart", "zipped"}:
            del sys.modules[name]


def of(name):
    return Sources().digest(name)


@pytest.mark.parametrize("is_imported", [False, True])
@pytest.mark.parametrize("name", [name for name in FILES if name != "apart.py"])
def test_a_module_counts_with_all_of_yours_that_it_imports(folder, name, is_imported):
    if is_imported:
        importlib.import_module("top")
    before, apart = of("top"), of("apart")
    (folder / name).write_text(FILES[name] + "\nCHANGED = 1\n")
    assert of("top") != before
    assert of("apart") == apart


def test_comments_blank_lines_and_places_count_for_nothing(folder, tmp_path, monkeypatch):
    before = of("top")
    (folder / "package" / "layers.py").write_text("# Why\n" + FILES["package/layers.py"].replace("\n", "  # so\n\n"))
    assert of("top") == before
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "apart.py").rename(elsewhere / "apart.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(elsewhere)
        assert of("apart") == of("only_late"), "the same source"


def test_what_this_process_has_loaded_and_the_file_has_no_more_counts(folder):
    nets = importlib.import_module("package.nets")
    as_it_was = of("package.nets")
    changed = FILES["package/nets.py"].replace("scale(x)", "scale(x) + 1")
    (folder / "package" / "nets.py").write_text(changed)
    not_reloaded = of("package.nets")
    importlib.invalidate_caches()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        importlib.reload(nets)
    finally:
        sys.dont_write_bytecode = before
    reloaded = of("package.nets")
    assert len({as_it_was, not_reloaded, reloaded}) == 3
    del sys.modules["package.nets"]
    assert of("package.nets") == reloaded, "as another process has it"


def test_installed_packages_and_dask_train_are_not_yours(folder):
    sources = Sources()
    installed = (np.__name__, "json", "sys", "xml.etree", dask_train.__name__, "dask_train.identity", "no_such", "")
    assert [name for name in installed if sources.is_yours(name)] == []
    assert of("numpy") == ""
    assert sources.is_yours("spaced.inner")
    (folder / "some-1.0.dist-info").mkdir()
    from dask_train.identity import sources as module

    module._holds_packages.cache_clear()
    assert not Sources().is_yours("apart"), "installed by pip --target"
    module._holds_packages.cache_clear()


def test_what_is_no_source_counts_by_its_bytes(folder):
    (folder / "apart.py").write_text("VALUE = (\n")
    broken = of("apart")
    (folder / "apart.py").write_text("VALUE = (2\n")
    assert of("apart") != broken
    (folder / "apart.py").unlink()
    importlib.invalidate_caches()
    assert of("apart") == ""


def test_modules_in_a_zip_file(folder, monkeypatch):
    def with_value(name, value):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("zipped.py", f"VALUE = {value}")
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder / name))
            return of("zipped")

    assert with_value("one.zip", 1) == with_value("other.zip", 1) != with_value("third.zip", 2)
