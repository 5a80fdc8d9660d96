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
    (
        "models_compared.py",
        ["--small"],
        ["network: held-out AUC 0.", "boosted tree: held-out AUC 0.", "logistic: held-out AUC 0.", "best: "],
    ),
    ("transfer_learning.py", ["--small"], ["Held out: features"]),
    ("plain_search.py", ["--small"], ["The best of 6 models", "shared memory: 50 MB before the search, 50 MB after"]),
    ("kmeans.py", ["--small"], ["rows read: 20,000, and dropped: 0", "furthest centre from scikit-learn's, of 12"]),
    ("pca.py", ["--small"], ["furthest component from scikit-learn's exact ones"]),
    ("admm.py", ["--small"], ["20,000 rows", "furthest coefficient from scikit-learn's"]),
    ("solvers.py", ["--small"], ["6 solvers came to the same objective"]),
    ("ensemble.py", ["--small"], ["the ensemble is better than its models on average"]),
]

# What they show has tests in tests/cluster, and each takes half a minute to two minutes.
NIGHTLY = (
    "between_graph_softmax.py",
    "blog_mnist.py",
    "ensemble.py",
    "flights.py",
    "functional.py",
    "in_graph.py",
    "keras_mnist.py",
    "models_compared.py",
    "moving_models.py",
    "pca.py",
    "plain_search.py",
    "publish_and_train.py",
    "transfer_learning.py",
)

# script, arguments, the output after which Ctrl-C is pressed; `fit` and the main job have tests of their own for it
INTERRUPTED = [
    pytest.param("in_graph.py", [], "Two TensorFlow servers after", marks=pytest.mark.nightly),
    ("torch_ddp.py", [], "step  100: loss"),
]

# Dask workers of these import them, as those of a script do.
AS_SCRIPTS = ("admm.py", "keras_mnist.py", "torch_ddp.py")

# The machine may be busy: four processes that import TensorFlow on two cores, beside other tests.
SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1", "DASK_TRAIN__LAUNCH__TIMEOUT": "180s"}


@contextmanager
def started(
    script: str, arguments: list[str], folder: Path, deadline_s: float, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A running example in a process group of its own, which Dask's processes share, killed at the deadline."""
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **SETTINGS, **environment},
        start_new_session=True,
    )

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)

    deadline = threading.Timer(deadline_s, kill)
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
    _, alive = psutil.wait_procs(group, timeout=30)
    return [" ".join(process.cmdline()) for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [pytest.param(*program, marks=[pytest.mark.nightly] if program[0] in NIGHTLY else []) for program in PROGRAMS],
)
def test_an_example_does_what_it_says(
    script: str,
    arguments: list[str],
    expected: list[str],
    tmp_path: Path,
    program_s: float,
    as_in_a_notebook: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    environment = {} if script in AS_SCRIPTS else as_in_a_notebook
    if script == "transfer_learning.py":
        request.getfixturevalue("photographs")
    with started(script, arguments, tmp_path, program_s, environment) as program:
        output, _ = program.communicate()
        assert program.returncode == 0, output
        assert [words for words in expected if words not in output] == [], output
        assert left_behind(program) == []


@pytest.mark.parametrize(("script", "arguments", "moment"), INTERRUPTED)
def test_ctrl_c_ends_an_example_in_order(
    script: str, arguments: list[str], moment: str, tmp_path: Path, program_s: float
) -> None:
    with started(script, arguments, tmp_path, program_s, {}) as program:
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
