"""The commands that look at runs, and end them, know no cluster but the one that they are told."""

from __future__ import annotations

import sys

import dask
import pytest
from click.testing import CliRunner

from dask_train.cli import train


@pytest.mark.parametrize("command", [["list"], ["status", "x"], ["logs", "x"], ["stop", "x"], ["run", "json:loads"]])
def test_without_a_scheduler_they_say_so(command, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    with dask.config.set({"scheduler-address": None}):
        result = CliRunner().invoke(train, command)
    assert result.exit_code == 2
    assert "There is no scheduler given. Pass --scheduler ADDRESS" in result.output
