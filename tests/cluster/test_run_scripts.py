"""``dask train run`` with a file, as a process, on a cluster from other processes that have none of its modules."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

SCRIPT = """
import sys
import dask.array as da
import numpy as np
from distributed import Client

import dask_train as dt
import helper

def work(session):
    rows = sum(len(x) for x in session.batches(batch_size=4))
    print("in a role", flush=True)
    session.report(rows=rows)
    return helper.double(rows)

def endless(session):
    n = 0
    while not session.should_stop():
        session.report(n=(n := n + 1))
        helper.pause()

def fails(session):
    raise ValueError("the loss is nan")

if __name__ == "__main__":
    what = {"work": work, "endless": endless, "fails": fails}[sys.argv[1]]
    client = Client() if "own" in sys.argv else None  # the cluster of the command line
    data = da.from_array(np.zeros((10, 2)), chunks=(5, 2)) if what is work else None
    result = dt.train(what, data=data, roles={"worker": 2}, name=sys.argv[-1], recovery=None)
    print(result.results["worker"], sys.argv[2:], flush=True)
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the user's files; commands are started above it."""
    folder = tmp_path_factory.mktemp("above") / "mine"
    folder.mkdir()
    (folder / "script.py").write_text(SCRIPT)
    (folder / "helper.py").write_text("import time\ndef double(n): return 2 * n\ndef pause(): time.sleep(0.02)\n")
    return folder


@pytest.fixture(scope="module")
def client(dask_process: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a scheduler and a Dask worker with two threads, processes of their own."""
    there = tmp_path_factory.mktemp("there")
    file = str(there / "s.json")
    worker = ("worker", "--scheduler-file", file, "--nthreads", "2", "--local-directory", str(there))
    with (
        dask_process("scheduler", "--port", "0", "--scheduler-file", file, path=there),
        dask_process(*worker, path=there),
        Client(scheduler_file=file) as client,
    ):
        client.wait_for_workers(1, timeout=60)
        yield client


@pytest.fixture(scope="module")
def command(client: Client, folder: Path) -> Callable[..., dict[str, Any]]:
    """``dask train`` with these words, as a command line and its environment for a process."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def make(*words: str) -> dict[str, Any]:
        args = [sys.executable, "-m", "dask", "train", words[0], "--scheduler", client.scheduler.address, *words[1:]]
        return {"args": args, "cwd": folder.parent, "env": {**environment, "TERM": "xterm"}}

    return make


@pytest.fixture(scope="module")
def run(command: Callable[..., Any]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command to its end."""
    return lambda *words: subprocess.run(**command(*words), capture_output=True, text=True, timeout=90, check=False)


def runs(client: Client) -> dict[str, str]:
    """How each run on record has ended, by the beginning of its name."""
    records = (client.sync(client.scheduler.train_runs) or {"runs": []})["runs"]
    assert all(record["ended"] for record in records)
    return {record["id"].rpartition("-")[0]: record["summary"].get("outcome", "") for record in records}


@pytest.mark.parametrize("whose", ["default", "own"])
def test_a_script_trains_on_the_cluster_of_the_command_line(run, client, whose):
    ran = run("run", "mine/script.py", "work", "--lr", "0.1", whose)
    assert [line for line in ran.stderr.splitlines() if " · " not in line] == [], "but progress, of a slow run"
    results, arguments = re.fullmatch(r"(\[.*?\]) (\[.*\])\n", ran.stdout).groups()
    assert sum(map(int, re.findall(r"\d+", results))) == 20, "twice the rows, by a module that travelled"
    assert arguments == f"['--lr', '0.1', '{whose}']"
    assert ran.returncode == 3, "as the script has it"
    assert "training roles have returned" in runs(client)[whose]


def test_programs_read_of_runs_as_json(run):
    name = "read"
    assert run("run", "mine/script.py", "work", name).returncode == 3
    (found,) = [each for each in json.loads(run("list", "--json").stdout) if each["run"].startswith(name)]
    assert (found["phase"], found["roles"], found["num_alive"]) == ("over", {"worker": 2}, 0)
    assert found["ended"] - found["started"] == pytest.approx(found["seconds"])
    status = json.loads(run("status", name, "--json").stdout)
    assert status["run"] == found["run"]
    assert {role["rank"] for role in status["each_role"]} == {0, 1}
    assert sum(score["rows"] for score in status["last_scores"]) == 10
    lines = [json.loads(line) for line in run("logs", name, "--json").stdout.splitlines()]
    assert sorted(line["rank"] for line in lines if line["text"] == "in a role") == [0, 1]
    findings = json.loads(run("doctor", "--json").stdout)["findings"]
    assert {"ok"} <= {finding["level"] for finding in findings}


def test_a_function_of_a_file(run):
    ran = run("run", "mine/script.py:fails", "--roles", "worker=1", "--recovery", "none")
    assert ran.returncode == 1
    assert "Error: worker 0 raised ValueError: the loss is nan." in ran.stderr


def test_a_script_whose_run_fails(run):
    ran = run("run", "mine/script.py", "fails")
    assert ran.returncode == 1
    assert re.search(r'File ".*mine/script\.py", line \d+, in <module>', ran.stderr)
    assert "raised ValueError: the loss is nan." in ran.stderr
    assert "Traceback of worker" in ran.stderr
    assert "runpy" not in ran.stderr


def test_progress_of_a_script_in_a_terminal_and_ctrl_c(command, client, read_until):
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(**command("run", "mine/script.py", "endless"), **streams, start_new_session=True) as process:
        os.close(theirs)
        try:
            text = read_until(ours, rb"(?s)scores/s.*scores/s")
            os.killpg(process.pid, signal.SIGINT)
            text += read_until(ours, None)
        finally:
            process.kill()  # does nothing to one that has ended
            os.close(ours)
    assert process.wait(timeout=60) == 130
    lines = [line for line in re.split(r"[\r\n]+", text.decode()) if line]
    assert lines[-1].endswith("Interrupted; nothing of the run is left.")
    assert "Traceback" not in text.decode()
    assert runs(client)["endless"] == "it was interrupted"
