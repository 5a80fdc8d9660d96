"""The main job as a person runs it: from the shell, to the end, out of reach, and interrupted at any moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DASK = Path(sys.executable).with_name("dask")
SMALL = ["--copies", "1", "--workers", "2", "--target", "0.3"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Starts a program as a shell does, in a process group of its own, its output in a file."""
    started: list[subprocess.Popen[bytes]] = []

    def start_program(*command: str | Path) -> tuple[subprocess.Popen[bytes], Path]:
        output = tmp_path / "output"
        with output.open("wb") as file:
            program = subprocess.Popen(
                command, cwd=tmp_path, start_new_session=True, stdout=file, stderr=subprocess.STDOUT
            )
        started.append(program)
        return program, output

    yield start_program
    for program in started:
        for process in of_session(program.pid):
            process.kill()
        program.wait(60)


def of_session(session: int) -> list[psutil.Process]:
    """The processes that still run in a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def test_the_demo_trains_and_reports(start: Any, wait_for: Any, tmp_path: Path) -> None:
    program, output = start(DASK, "train", "demo", *SMALL)
    assert program.wait(300) == 0, output.read_text()
    text = output.read_text()
    accuracy = re.search(r"^test accuracy: (\d+\.\d)%$", text, re.MULTILINE)
    assert accuracy, text
    assert float(accuracy[1]) > 88, text
    assert re.search(r"rows prepared +55,000\n", text)
    assert re.search(r"55,000 rows prepared · [\d,]+ rows trained · .* score 0\.\d+ · target 0\.3000", text)
    assert "\x1b" not in text
    page = (tmp_path / "report.html").read_text()
    assert all(name in page for name in ("ps 0", "worker 0", "worker 1", "scorer 0", "variance", "127.0.0.1"))
    wait_for(lambda: not of_session(program.pid), "processes are gone")


@pytest.mark.nightly
def test_a_target_out_of_reach_ends_with_exit_code_1(start: Any, tmp_path: Path) -> None:
    program, output = start(
        DASK, "train", "demo", "--copies", "1", "--workers", "1", "--target", "0.0001", "--max-seconds", "3", "--sync"
    )
    assert program.wait(300) == 1, output.read_text()
    assert "The target of 0.0001 was not reached within 3 s." in output.read_text()
    assert "synchronous" in output.read_text()


def test_what_can_not_be_says_so_before_anything_starts(start: Any) -> None:
    program, output = start(DASK, "train", "demo", "--workers", "0")
    assert program.wait(300) == 2
    assert "Invalid value for '--workers': 0 is not in the range x>=1." in output.read_text()


@pytest.mark.parametrize(
    "phase", ["training", *(pytest.param(phase, marks=pytest.mark.nightly) for phase in ("preparing", "raising"))]
)
def test_an_interrupt_leaves_nothing(start: Any, wait_for: Any, phase: str, tmp_path: Path) -> None:
    program, output = start(DASK, "train", "demo", "--copies", "2", "--workers", "1", "--target", "0.0001")
    begun = {"preparing": "preparing", "raising": "drawn in", "training": "score"}[phase]
    wait_for(lambda: begun in output.read_text() or program.poll() is not None, f"{phase} has begun", 120)
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait(300) == 130, output.read_text()
    assert "Interrupted; everything that was started has ended." in output.read_text()
    assert "Traceback" not in output.read_text()
    wait_for(lambda: not of_session(program.pid), f"{of_session(program.pid)} are gone")
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


OWN_CLUSTER = """
import os, signal, threading
from distributed import Client, LocalCluster
import dask_train as dt

def role():
    dt.board("never").wait_until(lambda board: len(board) > 9, 60)

if __name__ == "__main__":
    with LocalCluster(n_workers=3, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        with Client(cluster) as client:
            data = client.scatter(list(range(7)), hash=False)
            pids = client.run(os.getpid)
            try:
                with dt.start_tensorflow(client, worker=2) as net:
                    futures = net.submit("worker", role)
                    try:
                        threading.Timer(0.5, os.killpg, (0, signal.SIGINT)).start()
                        futures[0].result(timeout=60)
                    except KeyboardInterrupt:
                        assert client.run(os.getpid) == pids, "a Dask worker died"
                        raise
            except KeyboardInterrupt:
                print("interrupted")
            assert client.gather(data) == list(range(7))
            assert len(client.run(os.getpid)) == 3
            print("data and Dask workers survive")
"""


@pytest.mark.nightly
def test_a_users_own_cluster_survives_an_interrupt(start: Any, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OWN_CLUSTER)
    program, output = start(sys.executable, tmp_path / "program.py")
    assert program.wait(300) == 0, output.read_text()
    # Dask's processes write of connections that close to the same file, before these lines or after them.
    assert "interrupted\ndata and Dask workers survive\n" in output.read_text()


USERS_CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=3, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@pytest.mark.nightly
def test_the_demo_runs_on_a_cluster_that_is_there_already(start: Any, tmp_path: Path) -> None:
    from distributed import Client

    (tmp_path / "cluster.py").write_text(USERS_CLUSTER)
    with subprocess.Popen(
        [sys.executable, tmp_path / "cluster.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as users:
        try:
            address = users.stdout.readline().strip()
            with Client(address) as client:
                data = client.scatter(list(range(5)), hash=False)
                command = ["train", "demo", "--scheduler", address, "--copies", "1", "--workers", "1", "--target", "1"]
                program, output = start(DASK, *command)
                assert program.wait(300) == 0, output.read_text()
                assert "\ntest accuracy: " in output.read_text()
                assert client.gather(data) == list(range(5))
                assert len(client.run(os.getpid)) == 3
                assert client.sync(client.scheduler.train_networks)["networks"] == {}
        finally:
            users.communicate("\n", timeout=30)
