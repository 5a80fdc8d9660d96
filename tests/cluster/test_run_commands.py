"""``dask train run``, ``list``, ``status``, ``logs`` and ``stop`` as processes, on a cluster from other processes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client
from forks import run_forked

import dask_train as dt

COMMAND = [sys.executable, "-m", "dask", "train"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# The functions that are run; the Dask workers have neither of these files.
JOB = """
import os
import time
import helper

def counts(session):
    print(f"begin {session.attempt}", flush=True)
    for n in range(helper.NUM_LINES):
        print(f"línea {n}", flush=True)
        time.sleep(0.002)
    print("the end", end="")
    session.report(loss=0.5)
    return session.rank * 10

def beats(session):
    n = 0
    while not session.should_stop():
        print(f"beat {session.attempt}.{n} {os.getpid()}", flush=True)
        session.report(n=n)
        n += 1
        time.sleep(0.02)
    print("stopped in order")
    return n

def scores(session):
    session.wait_until_stopped()

def fails(session):
    print("before it fails")
    if session.rank == 1:
        raise ValueError("the loss is nan")
    session.wait_until_stopped()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the user's files, in which the commands are started."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "job.py").write_text(JOB)
    (folder / "helper.py").write_text("NUM_LINES = 1000\n")
    return folder


@pytest.fixture(scope="module")
def client(dask_process: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a scheduler and two Dask workers with two threads each, all processes of their own."""
    there = tmp_path_factory.mktemp("there")
    file = str(there / "s.json")
    worker = ("worker", "--scheduler-file", file, "--nthreads", "2", "--local-directory", str(there))
    with (
        dask_process("scheduler", "--port", "0", "--scheduler-file", file, path=there),
        dask_process(*worker, path=there),
        dask_process(*worker, path=there),
        Client(scheduler_file=file) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="module")
def command(client: Client, folder: Path) -> Callable[..., list[str]]:
    """``dask train`` with these words, as a command line and its environment for a process."""
    os_environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**os_environment, "DASK_SCHEDULER_ADDRESS": client.scheduler.address, "TERM": "xterm"}

    def make(*words: str) -> dict[str, Any]:
        return {"args": [*COMMAND, *words], "cwd": folder, "env": environment}

    return make


@pytest.fixture(scope="module")
def dask_train(command: Callable[..., Any]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``dask train`` with these words to its end."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        given = command(*words)
        return run_forked(["train", *words], given["cwd"], given["env"])

    return run


@pytest.fixture
def started(command: Callable[..., Any], client: Client, wait_for: Callable[..., Any]) -> Iterator[Any]:
    """Starts ``dask train run`` and waits until its roles have reported; what still goes on is ended."""
    processes = []

    def start(*words: str, name: str) -> tuple[subprocess.Popen[str], str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen(**command("run", *words, "--name", name), **pipes)
        processes.append(process)
        run = wait_for(lambda: next((run for run in runs(client) if run["id"].startswith(name)), None), "a run")["id"]
        wait_for(lambda: shown(client, run)["summary"].get("num_scores", 0) > 3, "scores")
        return process, run

    yield start
    for process in processes:
        process.kill()
        process.communicate()
    wait_for(lambda: all(run["ended"] for run in runs(client)), "all runs are over")


def runs(client: Client) -> list[dict[str, Any]]:
    return (client.sync(client.scheduler.train_runs) or {"runs": []})["runs"]


def shown(client: Client, run: str) -> dict[str, Any]:
    return client.sync(client.scheduler.train_run_show, run=run, output=False)


def pids(client: Client, run: str) -> list[int]:
    return [role[5] for role in shown(client, run)["summary"]["roles"]]


def of(lines: list[str], role: str) -> list[str]:
    return [line.removeprefix(f"[{role}] ") for line in lines if line.startswith(f"[{role}] ")]


def test_before_the_first_run_there_is_none(dask_process, tmp_path, command):
    file = str(tmp_path / "s.json")
    with (
        dask_process("scheduler", "--port", "0", "--scheduler-file", file, path=tmp_path),
        Client(scheduler_file=file) as client,
    ):
        words = [command("list"), command("status", "x"), command("stop", "x"), command("logs", "x")]
        for word in words:
            word["env"] = {**word["env"], "DASK_SCHEDULER_ADDRESS": client.scheduler.address}
        pipes = {"capture_output": True, "text": True, "timeout": 60}
        listed, *others = [subprocess.run(**word, **pipes, check=False) for word in words]
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "The scheduler has no runs.\n", "")
    for other in others:
        assert (other.returncode, other.stderr) == (1, "Error: The scheduler has no run 'x'; it has no runs.\n")


def without_progress(stderr: str) -> list[str]:
    """Lines of standard error but those of progress, of which a run has one where it takes longer than 10 s."""
    return [line for line in stderr.splitlines() if " · " not in line]


def test_a_run_prints_each_line_once_and_its_result(dask_train, is_listed):
    ran = dask_train("run", "job:counts", "--roles", "worker=3", "--name", "counts")
    lines = ran.stdout.splitlines()
    for rank in range(3):
        assert of(lines, f"worker {rank}") == ["begin 0", *[f"línea {n}" for n in range(1000)], "the end"]
    assert re.match(r"counts-\w{6} ended well after .* s: its training roles have returned\.", lines[-5])
    assert re.match(r"3 scores, the last of worker \d: loss 0.5", lines[-4])
    assert lines[-3:] == ["worker 0 returned 0", "worker 1 returned 10", "worker 2 returned 20"]
    assert ran.returncode == 0
    (told,) = without_progress(ran.stderr)
    assert re.fullmatch(r"run counts-\w{6}", told), "nothing is drawn into a pipe"
    assert is_listed("counts", "0/3", "over: its training roles have returned")


@pytest.fixture
def is_listed(dask_train):
    """Whether ``dask train list`` has a line with these words."""

    def look(*words: str) -> bool:
        listed = dask_train("list").stdout.splitlines()
        assert listed[0].split() == ["run", "started", "alive", "scores", "took", "state"]
        return any(all(word in line for word in words) for line in listed[1:])

    return look


def test_a_run_that_fails(dask_train, is_listed):
    ran = dask_train("run", "job:fails", "--roles", "worker=2", "--recovery", "none", "--name", "fails")
    assert ran.returncode == 1
    assert "[worker 1] before it fails" in ran.stdout.splitlines()
    run, error, *notes = without_progress(ran.stderr)
    assert error == "Error: worker 1 raised ValueError: the loss is nan."
    assert notes[0] == "Traceback of worker 1:"
    assert notes[-1].startswith(f"This was {run}; dask train logs")
    assert "ValueError: the loss is nan" in notes
    assert len(re.findall(r"^Traceback \(", ran.stderr, re.MULTILINE)) == 1
    assert "dask_train/" not in ran.stderr
    assert is_listed("fails", "0/2", "over: RoleFailedError: worker 1 raised ValueError: the loss is nan.")


def test_what_can_not_be_started(dask_train):
    for words, told in [
        (("job:counts", "--roles", "worker=1", "--resources", "GPU=1"), "declares GPU=1"),
        (("job:counts", "--roles", "ps=1"), "is function for role 'worker', which the run does not have"),
        (("job:counts", "--stop", "loss <"), "'loss <' is no rule to stop by"),
    ]:
        ran = dask_train("run", *words)
        assert (ran.returncode, told in ran.stderr, "Traceback" in ran.stderr) == (1, True, False), ran.stderr


def test_a_stop_rule_and_other_roles(dask_train):
    words = ["--roles", "worker=1,scorer=1", "--role", "scorer=job:scores", "--stop", "n >= 1000", "--stop", "n >= 5"]
    ran = dask_train("run", "job:beats", *words, "--name", "ruled")
    assert ran.returncode == 0, ran.stderr
    assert "stopped in order" in of(ran.stdout.splitlines(), "worker 0")
    assert re.search(r"^ruled-\w{6} ended well after .*n.* >= 5", ran.stdout, re.MULTILINE)


def test_ctrl_c_stops_the_run_in_order(started, client, is_listed, is_alive):
    process, run = started("job:beats", "--roles", "worker=2", name="interrupted")
    roles = pids(client, run)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == [f"run {run}", "Interrupted; nothing of the run is left."]
    for rank in (0, 1):
        assert of(output.splitlines(), f"worker {rank}")[-1] == "stopped in order"
    assert not any(map(is_alive, roles))
    assert is_listed(run, "0/2", "over: it was interrupted")


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    return lambda pid: psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_another_shell_looks_at_a_run_and_stops_it(started, client, dask_train, is_listed):
    process, run = started("job:beats", "--roles", "worker=2", name="looked-at")
    assert is_listed(run, "2/2", "running")
    status = dask_train("status", "looked").stdout
    assert status.splitlines()[:2] == [f"run      {run}", "roles    worker=2 (2/2 alive)"]
    for rank, pid in enumerate(pids(client, run)):
        assert re.search(rf"^worker {rank}  running  0 +{pid} +0 +127\.0\.0\.1:\d+ ", status, re.MULTILINE)
        assert re.search(rf"^worker {rank}  [\d:]+  n \d+$", status, re.MULTILINE)
    logs = dask_train("logs", run, "--role", "worker", "--rank", "1").stdout.splitlines()
    assert len(logs) > 3
    assert of(logs, "worker 1") == [f"beat 0.{n} {pids(client, run)[1]}" for n in range(len(logs))]
    stopped = dask_train("stop", "looked", "--reason", "good enough now")
    assert (stopped.returncode, stopped.stdout) == (0, f"Run {run} is over: good enough now.\n")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"{run} ended well after " in output
    kept = dask_train("logs", run).stdout.splitlines()
    assert of(kept, "worker 1") == of(output.splitlines(), "worker 1")
    assert "outcome  good enough now" in dask_train("status", run).stdout.splitlines()
    assert dask_train("stop", run).stdout == f"Run {run} was over already: good enough now.\n"


def test_followed_lines_come_once_also_from_a_role_that_is_replaced(started, client, command, dask_train, wait_for):
    process, run = started("job:beats", "--roles", "worker=2", name="followed")
    follow = subprocess.Popen(**command("logs", run, "--follow"), stdout=subprocess.PIPE, text=True)
    first = pids(client, run)[0]
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: shown(client, run)["summary"]["roles"][0][3] == 1, "a replacement")
    num_scores = shown(client, run)["summary"]["num_scores"]
    wait_for(lambda: shown(client, run)["summary"]["num_scores"] > num_scores + 60, "scores of both")
    assert "lost     worker 0 is lost: its process" in dask_train("status", run).stdout
    dask_train("stop", run)
    printed, _ = process.communicate(timeout=60)
    followed, _ = follow.communicate(timeout=60)
    for text in (printed, followed, dask_train("logs", run).stdout):
        lines = of(text.splitlines(), "worker 0")
        beats = [tuple(map(int, re.match(r"beat (\d)\.(\d+)", line).groups())) for line in lines[:-1]]
        numbers = [[n for attempt, n in beats if attempt == which] for which in (0, 1)]
        assert all(beats == list(range(len(beats))) and beats for beats in numbers)
        assert beats == sorted(beats), "the first attempt comes first"
        assert lines[-1] == "stopped in order"


def test_names_of_which_there_are_several_or_none(started, client, dask_train):
    _, one = started("job:beats", "--roles", "worker=1", name="alike-one")
    _, two = started("job:beats", "--roles", "worker=1", name="alike-two")
    for word in ("status", "logs", "stop"):
        ran = dask_train(word, "alike")
        assert ran.returncode == 1
        assert ran.stderr.startswith("Error: 2 runs begin with 'alike': alike-")
        assert {one, two} <= set(re.findall(r"[\w-]+", ran.stderr))
        none = dask_train(word, "unlike")
        assert re.match(r"Error: The scheduler has no run 'unlike'; it has .*alike-", none.stderr)
    assert dask_train("logs", one, "--role", "ps").stderr == f"Error: Run {one} has no role ps; it has worker=1.\n"
    assert not shown(client, one)["ended"]


def test_a_run_whose_client_is_frozen_does_not_stop_in_time(started, client, monkeypatch):
    from dask_train.driver.records import stop_run

    process, run = started("job:beats", "--roles", "worker=1", name="frozen")
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(dt.StalledError, match=f"Run {run} was asked to stop, and is not over after 0.5 s"):
            stop_run(client, run, "enough", timeout_s=0.5)
    finally:
        process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == 0


WAITING = """
import sys
import dask_train as dt
from distributed import Client
from job import beats

if __name__ == "__main__":
    import cloudpickle, job, helper
    cloudpickle.register_pickle_by_value(job)
    with Client() as client:
        try:
            dt.train(beats, roles={"worker": 2}, client=client, name="waiting")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(130)
"""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("way", ["command", "train"])
def test_progress_in_a_terminal_and_ctrl_c(command, client, columns, way, read_until):
    arguments = command("run", "job:beats", "--roles", "worker=2", "--name", "terminal")
    if way == "train":
        arguments["args"] = [sys.executable, "-c", WAITING]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(**arguments, **streams, start_new_session=True) as process:
        os.close(theirs)
        try:
            text = read_until(ours, rb"(?s)scores/s.*scores/s")
            process.send_signal(signal.SIGINT)
            text += read_until(ours, None)
        finally:
            process.kill()  # does nothing to one that has ended
            os.close(ours)
    assert process.wait(timeout=60) == 130
    written = text.decode()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is shown again"
    assert written.rindex("\x1b[2K") > written.rindex("scores/s"), "the line is erased"
    lines = [line for line in re.split(r"[\r\n]+", CONTROL.sub("", written)) if line]
    progress = [line for line in lines if "scores/s" in line]
    assert max(map(len, progress)) <= columns - 3
    assert re.match(r"running · 2(/2| of 2 roles) · n \d+ · \d+ scores/s · .* s$", progress[-1])
    assert lines[-1] == {"command": "Interrupted; nothing of the run is left.", "train": "interrupted"}[way]
    assert any("] beat 0.0 " in line for line in lines) is (way == "command")


def test_progress_needs_somebody_who_waits(client):
    with pytest.raises(ValueError, match="Progress is shown while a verb waits"):
        dt.train(lambda session: None, roles={"worker": 1}, client=client, wait=False, progress=True)
    with pytest.raises(TypeError, match="progress is 'yes'"):
        dt.train(lambda session: None, roles={"worker": 1}, client=client, progress="yes")


def test_a_watched_result_has_its_deadline_too(client):
    def beat(session):
        while not session.should_stop():
            session.report(loss=0.5)
            time.sleep(0.02)

    seen: list[dict[str, Any]] = []
    run = dt.train(beat, roles={"worker": 1}, client=client, wait=False)
    next(iter(run.scores()))  # it is up
    began_s = time.monotonic()
    with pytest.raises(dt.StalledError, match=f"Run {run.id} still runs after 2 s"):
        run.result(timeout_s=2, watch=seen.append)
    run.stop()
    run.result(watch=seen.append)
    assert (seen[-1]["phase"], seen[-1]["num_alive"], seen[-1]["training"]) == ("over", 0, ["worker"])
    assert any(status["num_alive"] == 1 and status["last_scores"][0][2]["loss"] == 0.5 for status in seen[1:-1])
    assert len(seen) <= 4 * (time.monotonic() - began_s) + 4, "four times a second"
