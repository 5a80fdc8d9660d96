"""What ``dask train run`` makes of its words, before it reaches a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest
from click.testing import CliRunner

from dask_train.cli import train

command = import_module("dask_train.cli.run")  # `dask_train.cli.run` is the command itself


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--roles", "ps"], "'ps' is not like NAME=VALUE"),
        (["--roles", "ps=1,ps=2"], "'ps=2' is not like NAME=VALUE, with each name once."),
        (["--roles", "ps=one"], "ps=one is not a whole number"),
        (["--roles", "worker=0"], "worker=0 is below 1"),
        (["--resources", "GPU=much"], "GPU=much is not a number"),
        (["--role", "scorer"], "'scorer' is not like NAME=VALUE"),
        (["--recovery", "none of it"], "is not one of 'role', 'gang', 'none'"),
    ],
)
def test_options_that_can_not_be_read(options, told):
    result = CliRunner().invoke(train, ["run", "json:loads", *options])
    assert result.exit_code == 2
    assert told in " ".join(result.output.replace("│", " ").split())


def test_options_as_arguments_of_train():
    nothing = {"roles": {}, "framework": None, "recovery": None, "stop": (), "resources": {}}
    assert command._wanted(**nothing) == {"roles": None, "framework": None, "resources": None, "stop": None}
    given = {"roles": {"ps": 1}, "framework": "torch", "recovery": "none", "stop": ("a < 1", "b < 2")}
    assert command._wanted(**given, resources={"GPU": 1.0}) == {
        "roles": {"ps": 1},
        "framework": "torch",
        "recovery": None,
        "stop": ["a < 1", "b < 2"],
        "resources": {"GPU": 1.0},
    }
    assert command._wanted(**{**nothing, "recovery": "gang"})["recovery"] == "gang"


def test_the_dask_command_does_not_wait_for_what_other_commands_import():
    heavy = "{'numpy', 'distributed', 'dask_train.report', 'dask_train.training.api'}"
    program = f"import sys, dask_train.cli; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["{script}", "--roles", "worker=2", "-h"], ["--roles", "worker=2", "-h"]),
        (["{script}", "a", "--", "b"], ["a", "--", "b"]),
        (["{script}"], []),
    ],
)
def test_what_follows_a_script_is_its_own(tmp_path, words, argv, monkeypatch, capsys):
    script = tmp_path / "mine.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    result = CliRunner().invoke(train, ["run", *(word.format(script=script) for word in words)])
    assert (result.exit_code, result.output) == (0, f"{argv}\n"), result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--roles", "worker=2", "mine.py"], "--roles is for functions, and a script passes it"),
        (["--name", "x", "mine.py"], "--name is for functions"),
        (["mine.py"], "There is no file mine.py."),
        (["json:loads", "a"], "'a' follows a function, which takes a session and no arguments."),
    ],
)
def test_what_does_not_go_with_a_script_or_a_function(words, told, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(train, ["run", *words])
    assert result.exit_code == 2
    assert told in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dask train st", {"plain,status", "plain,stop"}),
        ("dask train run --re", {"plain,--recovery", "plain,--resources"}),
        ("dask train run tr", {"file,tr"}),
    ],
)
def test_a_shell_completes_commands_options_and_files(words, offered):
    environment = {**os.environ, "_DASK_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    args = [sys.executable, "-c", "import sys; sys.argv = ['dask']; from dask.__main__ import main; main()"]
    ran = subprocess.run(args, env=environment, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == offered
