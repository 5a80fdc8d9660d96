"""Programs for torchrun train, in roles, what they train under torchrun, to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from distributed import Client

import dask_train as dt

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent


def in_a_role(session, program):
    sys.path.insert(0, str(FOLDER))
    import programs_of_torchrun

    return programs_of_torchrun.weights(program)


@pytest.fixture(scope="module")
def client(local_clusters):
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=1)) as client:
        yield client


@pytest.mark.parametrize(
    "program",
    [
        "with_accelerate",
        pytest.param("with_lightning", marks=pytest.mark.nightly),
        pytest.param("with_transformers", marks=pytest.mark.nightly),
    ],
)
def test_a_program_trains_what_it_trains_under_torchrun(client, program, tmp_path):
    for package in ("torch", program.removeprefix("with_")):
        pytest.importorskip(package)
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for _ in range(2):  # threads of torch's own have aborted a program that had ended
        ran = subprocess.run(
            [*ranks, str(FOLDER / "programs_of_torchrun.py"), program, str(tmp_path / "weights.json")],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        if ran.returncode == 0:
            break
    assert ran.returncode == 0, ran.stderr[-3000:]
    function = partial(in_a_role, program=program)
    result = dt.train(function, roles={"worker": 2}, framework="torch", client=client, progress=False)
    assert result.results["worker"] == [json.loads((tmp_path / "weights.json").read_text())] * 2
