"""What ``dask train run`` makes of its words, before it reaches a cluster."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module

import click
import cloudpickle
import pytest
from click.testing import CliRunner

from dask_train.cli import train
from dask_train.cli.local_functions import load_function, local_modules_travel
from dask_train.cli.watched_run import tell_result
from dask_train.data.ledger import balance
from dask_train.driver.result import Result

command = import_module("dask_train.cli.run")  # `dask_train.cli.run` is the command itself


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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--roles", "ps"], "'ps' is not like NAME=VALUE"),
        (["--roles", "ps=1,ps=2"], "'ps=2' is not like NAME=VALUE, with each name once."),
        (["--roles", "ps=one"], "invalid literal for int"),
        (["--resources", "GPU=much"], "could not convert string to float"),
        (["--role", "scorer"], "'scorer' is not like NAME=VALUE"),
        (["--recovery", "none of it"], "is not one of 'role', 'gang', 'none'"),
    ],
)
def test_options_that_can_not_be_read(options, told):
    result = CliRunner().invoke(train, ["run", "json:loads", *options])
    assert result.exit_code == 2
    assert told in " ".join(result.output.replace("│", " ").split())


def test_options_as_arguments_of_train():
    nothing = {"roles": {}, "framework": None, "recovery": None, "stops": (), "resources": {}}
    assert command._wanted(**nothing) == {"roles": None, "framework": None, "resources": None, "stop": None}
    given = {"roles": {"ps": 1}, "framework": "torch", "recovery": "none", "stops": ("a < 1", "b < 2")}
    assert command._wanted(**given, resources={"GPU": 1.0}) == {
        "roles": {"ps": 1},
        "framework": "torch",
        "recovery": None,
        "stop": ["a < 1", "b < 2"],
        "resources": {"GPU": 1.0},
    }
    assert command._wanted(**{**nothing, "recovery": "gang"})["recovery"] == "gang"


def test_the_end_of_a_run_in_brief(capsys):
    score = {"loss": 0.123456, "step": 3, "note": "a", "role": "worker", "rank": 1, "attempt": 0, "time": 1.0}
    results = {"ps": [None], "worker": [list(range(10_000))] * 20}
    result = Result(
        results=results, scores=[score] * 1234, attempts=[], ledger=balance({}, {}, {}), stop_reason="", run_id="mine-1"
    )
    tell_result(result, 12.34)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "mine-1 ended well after 12.3 s: its training roles have returned.",
        "1,234 scores, the last of worker 1: loss 0.1235, step 3, note a",
        "worker 0 returned [0, 1, 2, 3, 4, 5, ...]",
    ]
    assert (len(lines), lines[-1]) == (2 + 16 + 1, "and 4 more results")


def test_the_dask_command_does_not_wait_for_what_other_commands_import():
    heavy = "{'numpy', 'distributed', 'dask_train.report', 'dask_train.training.api'}"
    program = f"import sys, dask_train.cli; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
