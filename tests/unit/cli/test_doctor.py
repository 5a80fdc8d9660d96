"""What ``dask train doctor`` prints."""

from __future__ import annotations

import io
import json

import dask
import pytest
from click.testing import CliRunner
from rich.console import Console

from dask_train.cli import train
from dask_train.cli.doctor import _processes, _table
from dask_train.doctor import examination
from dask_train.doctor.diagnosis import Finding
from dask_train.doctor.examined import Examination
from dask_train.doctor.page import write_page


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


def test_a_web_page_says_the_same(here, tmp_path):
    findings = [Finding("warn", f"Something <{n}> is so.", "pip install 'dask-train[torch]'.") for n in range(40)]
    page = tmp_path / "page.html"
    write_page("The condition of <this>", findings, ("", "host"), [("here", here["host"])], page)
    text = page.read_text()
    assert "<h1>The condition of &lt;this&gt;</h1>" in text
    assert all(f"Something &lt;{n}&gt; is so." in text for n in range(40)), "none is left out"
    assert here["host"] in text
    with dask.config.set({"scheduler-address": None}):
        assert CliRunner().invoke(train, ["doctor", "--html", str(page)]).exit_code == 0
        result = CliRunner().invoke(train, ["doctor", "--html", str(tmp_path / "no" / "page.html")])
    assert "what to change" in page.read_text()
    assert (result.exit_code, "can't be written" in result.output) == (1, True)


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal_and_keep_every_word(here, width):
    here = {**here, "versions": {**here["versions"], "dask_train": "0.1.0.dev1234"}}
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


def test_json_has_the_findings_alone_on_standard_output():
    with dask.config.set({"scheduler-address": None}):
        result = CliRunner().invoke(train, ["doctor", "--json"])
    found = json.loads(result.stdout)
    assert found["scheduler"] == ""
    assert {"level", "what", "change"} == set(found["findings"][0])
    assert any("shm has " in finding["what"] for finding in found["findings"])
    assert "this machine alone" in result.stderr
