"""Functions named on a command line: found in the current folder, and sent whole."""

from __future__ import annotations

import pickle
import subprocess
import sys

import click
import cloudpickle
import pytest

from dask_train.cli.local_functions import load_function, local_modules_travel


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


def test_modules_of_the_folder_travel_and_installed_ones_do_not(folder):
    (folder / "mine_d.py").write_text(
        "import json\nimport mine_e, mine_f.inner\ndef f():\n    return mine_f.inner.g()\n"
    )
    (folder / "mine_e.py").write_text("")
    (folder / "mine_f").mkdir()
    (folder / "mine_f" / "inner.py").write_text("def g():\n    return 42\n")
    function = load_function("mine_d:f")
    with local_modules_travel(str(folder)):
        registered = set(cloudpickle.list_registry_pickle_by_value())
        pickled = cloudpickle.dumps(function)
    assert {name for name in registered if name.startswith("mine")} == {"mine_d", "mine_e", "mine_f", "mine_f.inner"}
    assert not {"json", "dask_train", "dask_train.cli"} & registered
    assert not {"mine_d", "mine_f"} & set(cloudpickle.list_registry_pickle_by_value())
    program = f"import pickle; print(pickle.loads({pickled!r})())"
    ran = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=True)
    assert ran.stdout == "42\n"
    assert pickle.loads(pickled)() == 42


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit('usage: ...')"])
def test_a_script_that_ends_while_it_is_imported_is_an_error(folder, end):
    (folder / "mine_g.py").write_text(f"import sys\ndef f(): pass\n{end}\n")
    with pytest.raises(click.ClickException, match=r"mine_g can't be imported\.\n(.*\n)*.*SystemExit"):
        load_function("mine_g:f")
