"""The commands that look at runs, and end them, know no cluster but the one that they are told."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import dask
import pytest
from click.testing import CliRunner

from dask_train.cli import runs, train
from dask_train.driver import records, role_output
from dask_train.driver.role_output import OutputLine


@pytest.mark.parametrize("command", [["list"], ["status", "x"], ["logs", "x"], ["stop", "x"], ["run", "json:loads"]])
def test_without_a_scheduler_they_say_so(command, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    with dask.config.set({"scheduler-address": None}):
        result = CliRunner().invoke(train, command)
    assert result.exit_code == 2
    assert "There is no scheduler given. Pass --scheduler ADDRESS" in result.output


def test_a_file_that_is_not_there_is_a_wrong_command_line(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", [*sys.path])
    result = CliRunner().invoke(train, ["run", "--scheduler", "tcp://no:1", str(tmp_path / "none" / "train.py:f")])
    assert (result.exit_code, "There is no file" in result.output) == (2, True)


@pytest.mark.parametrize("command", [["list"], ["status", "x"], ["logs", "x"], ["stop", "x"], ["doctor"]])
def test_after_ctrl_c_the_status_is_130(command, monkeypatch):
    def interrupted(**options):
        raise KeyboardInterrupt

    for module in ("runs", "doctor"):  # the package has commands by these names
        monkeypatch.setattr(sys.modules[f"dask_train.cli.{module}"], "connect", interrupted)
    result = CliRunner().invoke(train, [*command, "--scheduler", "tcp://no:1"])
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_output_of_roles_is_masked(option, monkeypatch):
    line = OutputLine("worker", 0, "opens s3://key:hunter2@bucket/x")
    monkeypatch.setattr(runs, "connect", lambda **options: nullcontext())
    monkeypatch.setattr(
        records, "find_run", lambda client, run: {"id": "r", "info": {"roles": {"worker": 1}}, "summary": {}}
    )
    reader = SimpleNamespace(over=True, read=lambda rest: [line])
    monkeypatch.setattr(role_output, "OutputReader", lambda *given: reader)
    result = CliRunner().invoke(train, ["logs", "r", *option])
    text = json.loads(result.stdout)["text"] if option else result.stdout
    assert "opens s3://***@bucket/x" in text
