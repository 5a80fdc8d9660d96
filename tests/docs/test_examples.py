"""Every program in ``examples/`` runs to its end in small mode, says what it should, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

# On two idle cores each takes 15 to 40 s, most of it TensorFlow being imported by several processes.
DEADLINE_S = 150

# script, arguments, what its output must say
PROGRAMS = [
    ("blog_mnist.py", ["--small", "--sync"], ["test accuracy: 9"]),
    ("moving_models.py", ["--small"], ["Moving made no difference."]),
    ("in_graph.py", ["--small"], ["furthest weight from those of one process"]),
    (
        "between_graph_softmax.py",
        ["--small", "--join", "--kill", "worker"],
        ["worker 2 waited for the chief", "worker 0 restored the checkpoint"],
    ),
    (
        "torch_ddp.py",
        ["--small", "--kill"],
        ["all started again, from step", "furthest weight from those of one worker"],
    ),
    ("publish_and_train.py", ["--small"], ["furthest weight of one process from that of the other: 0\n"]),
    ("keras_mnist.py", ["--small"], ["of the weights of one process"]),
    ("functional.py", ["--small"], ["best epoch: 4; CSVLogger wrote 4 lines", "of the weights of one process"]),
    ("flights.py", ["--small"], ["Held-out AUC: 2 workers 0.9"]),
    ("transfer_learning.py", ["--small"], ["Held out: features"]),
    ("plain_search.py", ["--small"], ["The best of 6 models", "shared memory: 50 MB before the search, 50 MB after"]),
    ("ensemble.py", ["--small"], ["the ensemble is better than its models on average"]),
]

# script, arguments, the output after which Ctrl-C is pressed; the main job is interrupted in its own tests
INTERRUPTED = [
    ("in_graph.py", [], "Two TensorFlow servers after"),
    ("torch_ddp.py", [], "step  100: loss"),
    ("functional.py", [], "2 workers"),
]


@contextmanager
def started(script: str, arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A running example in a process group of its own, which Dask's processes share, killed at the deadline."""
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)

    deadline = threading.Timer(DEADLINE_S, kill)
    deadline.start()
    try:
        with program:
            yield program
    finally:
        deadline.cancel()
        deadline.join()
        kill()


def left_behind(program: subprocess.Popen[str]) -> list[str]:
    """Processes of the program's group that are still there some seconds after its end."""
    group = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == program.pid:
                group.append(process)
    _, alive = psutil.wait_procs(group, timeout=5)
    return [" ".join(process.cmdline()) for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(("script", "arguments", "expected"), PROGRAMS)
def test_an_example_does_what_it_says(
    script: str, arguments: list[str], expected: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if script == "transfer_learning.py":
        request.getfixturevalue("photographs")
    with started(script, arguments, tmp_path) as program:
        output, _ = program.communicate()
        assert program.returncode == 0, output
        assert [words for words in expected if words not in output] == [], output
        assert left_behind(program) == []


@pytest.mark.parametrize(("script", "arguments", "moment"), INTERRUPTED)
def test_ctrl_c_ends_an_example_in_order(script: str, arguments: list[str], moment: str, tmp_path: Path) -> None:
    with started(script, arguments, tmp_path) as program:
        seen = []
        assert program.stdout is not None
        for line in program.stdout:
            seen.append(line)
            if moment in line:
                break
        os.killpg(program.pid, signal.SIGINT)
        rest, _ = program.communicate()
        output = "".join(seen) + rest
        assert program.returncode == 1, output
        assert "Interrupted" in rest
        assert "Traceback" not in output
        assert left_behind(program) == []
