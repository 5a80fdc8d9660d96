"""What ``dask train run`` makes of its words, before it reaches a cluster."""

from __future__ import annotations

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


def test_the_dask_command_does_not_wait_for_what_other_commands_import():
    heavy = "{'numpy', 'distributed', 'dask_train.report', 'dask_train.training.api'}"
    program = f"import sys, dask_train.cli; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
