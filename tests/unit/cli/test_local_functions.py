"""Functions named on a command line: found in the current folder, and sent whole."""

from __future__ import annotations

import sys

import click
import pytest

from dask_train.cli.local_functions import folder_of, is_script, load_function


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, first on the import path; what is imported from there is forgotten."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_function_is_imported_from_the_current_folder(folder):
    (folder / "mine_a.py").write_text("class A:\n    @staticmethod\n    def f(x): return x + 1\n")
    assert load_function("mine_a:A.f")(1) == 2


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("mine_b", "'mine_b' names no function. Write it like module:function."),
        (":f", "':f' names no function"),
        ("mine_b:", "'mine_b:' names no function"),
        ("nowhere_b:f", "There is no module 'nowhere_b', neither here (.*) nor installed."),
        ("mine_b.sub:f", "mine_b.sub can't be imported|There is no module"),
        ("mine_b:g", "mine_b has no 'g'; it has f."),
        ("mine_b:VALUE.run", "mine_b has no 'VALUE.run'; it has no functions."),
        ("mine_b:VALUE", "mine_b:VALUE is a int, not a function."),
    ],
)
def test_what_names_no_function(folder, named, told):
    (folder / "mine_b.py").write_text("VALUE = 1\ndef f(): pass\n")
    with pytest.raises(click.ClickException) as raised:
        load_function(named)
    pattern = told.replace("(.*)", f"({folder})")
    assert any(part in raised.value.message for part in pattern.split("|"))


def test_a_module_that_raises_shows_its_own_traceback_alone(folder):
    (folder / "mine_c.py").write_text("import nothing_like_this\n")
    with pytest.raises(click.ClickException) as raised:
        load_function("mine_c:f")
    lines = raised.value.message.splitlines()
    assert lines[0] == "mine_c can't be imported."
    assert lines[2] == f'  File "{folder}/mine_c.py", line 1, in <module>'
    assert lines[-1] == "ModuleNotFoundError: No module named 'nothing_like_this'"


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit('usage: ...')"])
def test_a_script_that_ends_while_it_is_imported_is_an_error(folder, end):
    (folder / "mine_g.py").write_text(f"import sys\ndef f(): pass\n{end}\n")
    with pytest.raises(click.ClickException, match=r"mine_g can't be imported\.\n(.*\n)*.*SystemExit"):
        load_function("mine_g:f")


def test_a_function_of_a_file_in_another_folder(folder, monkeypatch):
    (folder / "sub").mkdir()
    (folder / "sub" / "mine_h.py").write_text("def f(): return 'of the file'\n")
    (folder / "mine_h.py").write_text("def f(): return 'of the current folder'\n")
    assert folder_of("sub/mine_h.py:f") == str(folder / "sub")
    assert folder_of("mine_h:f") == str(folder)
    with pytest.raises(click.UsageError, match=r"another module is called 'mine_h'\. Rename the file"):
        load_function("sub/mine_h.py:f")
    del sys.modules["mine_h"]
    monkeypatch.syspath_prepend(str(folder / "sub"))
    assert load_function("sub/mine_h.py:f")() == "of the file"


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("nowhere.py:f", "There is no file nowhere.py."),
        ("two-words.py:f", "'two-words' is no name of a module. Rename the file."),
        ("json.py:loads", "another module is called 'json'. Rename the file."),
    ],
)
def test_files_that_can_not_be_imported(folder, named, told):
    for name in ("two-words.py", "json.py"):
        (folder / name).write_text("def f(): pass\ndef loads(): pass\n")
    with pytest.raises(click.UsageError) as raised:
        load_function(named)
    assert told in raised.value.message


def test_what_is_a_script():
    assert [is_script(named) for named in ("a/b.py", "a/b.py:f", "b:f", "b")] == [True, False, False, False]
