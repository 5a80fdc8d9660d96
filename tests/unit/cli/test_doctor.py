"""What ``dask train doctor`` prints."""

from __future__ import annotations

import io

import dask
import pytest
from click.testing import CliRunner
from rich.console import Console

from dask_train.cli import train
from dask_train.cli.doctor import _processes, _table
from dask_train.cluster import examination
from dask_train.cluster.diagnosis import Finding
from dask_train.cluster.examined import Examination


@pytest.fixture
def here():
    return examination.examine_here().here


def test_without_a_scheduler_it_is_about_this_machine():
    with dask.config.set({"scheduler-address": None}):
        result = CliRunner().invoke(train, ["doctor"])
    lines = result.output.splitlines()
    assert lines[0] == "No scheduler is given (--scheduler ADDRESS), so this is about this machine alone."
    assert lines[1].startswith("here; host ")
    assert "dask_train 0." in lines[1]
    assert any(line.startswith("ok    /dev/shm has ") for line in lines)
    assert lines[-1].startswith("0 bad, ")
    assert result.exit_code == 0


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal_and_keep_every_word(here, width):
    other = {**here, "versions": {**here["versions"], "torch": "1.0.0"}}
    workers = {f"tcp://10.0.0.1:{40000 + i}": here for i in range(20)}
    workers["tcp://10.0.0.1:40001"] = other
    findings = [Finding("warn", "Something [with brackets] :warning: is so.", "pip install 'dask-train[torch]' there.")]
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False)
    console.print(_processes(Examination(address="tcp://s:1", here=here, workers=workers)))
    console.print(_table(findings))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "tcp://10.0.0.1:40015" in text
    assert "tcp://10.0.0.1:40016" not in text
    assert "and 4 more" in text
    assert text.count("as here") == 15
    assert "torch 1.0.0" in text
    assert {"[with", "brackets]", ":warning:", "'dask-train[torch]'"} <= set(text.split())
