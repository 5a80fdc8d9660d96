"""Data that does not fit into memory is refused, where that can be known before anything is computed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dask_train as dt
from dask_train.data.pool import process_pool

MB = 1 << 20
BLOCK = 10 * MB


@pytest.fixture(scope="module")
def train_client(local_clusters):
    """2 Dask workers of 600 MB, of which a run's data may take what is below 360 MB."""
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=1, memory_limit=600 * MB)) as client:
        client.run(keep_little)
        yield client


def keep_little():
    """Shared memory that is free goes back at once, which the next test looks for."""
    process_pool().keep_warm_s = 0.05


def num_rows(session):
    return sum(len(batch) for batch in session.batches(batch_size=256))


def blocks(folder, num):
    """So many blocks of 10 MB; each leaves a file when it is computed."""

    def block(block_info=None):
        (folder / str(block_info[None]["chunk-location"][0])).touch()
        return np.zeros((BLOCK // 4096, 1024), "f4")

    return da.map_blocks(block, chunks=((BLOCK // 4096,) * num, 1024), dtype="f4")


def test_what_cannot_fit_is_refused_before_it_is_computed(client, tmp_path):
    with pytest.raises(
        dt.DataError,
        match=r"data takes 0\.98 GiB \(worker: 0\.98 GiB\), and 2 Dask workers can take \d+\.\d+ MiB, less "
        r"200\.00 MiB for 2 role processes\. That is what their memory limits leave .* Pass streaming=True",
    ):
        dt.train(num_rows, roles={"worker": 2}, data=blocks(tmp_path, 100))
    data = {"worker": blocks(tmp_path, 60), "scorer": blocks(tmp_path, 40)}
    with pytest.raises(dt.DataError, match=r"takes 0\.98 GiB \(worker: 600\.00 MiB, scorer: 400\.00 MiB\)"):
        dt.train({"worker": num_rows, "scorer": num_rows}, roles={"worker": 1, "scorer": 1}, data=data)
    assert not list(tmp_path.iterdir())
    assert not any(client.processing().values())


def test_the_limit_can_be_set_to_more_and_to_less(client, tmp_path):
    data = blocks(tmp_path, 45)
    with (
        dask.config.set({"train.memory.limit": "100 MiB"}),
        pytest.raises(
            dt.DataError,
            match=r"takes 450\.00 MiB .* 2 Dask workers can take 200\.00 MiB\. train\.memory\.limit is 100\.00 MiB a",
        ),
    ):
        dt.train(num_rows, roles={"worker": 2}, data=data)
    with pytest.raises(dt.DataError, match=r"takes 450\.00 MiB"):
        dt.train(num_rows, roles={"worker": 2}, data=data)
    assert not list(tmp_path.iterdir())
    with dask.config.set({"train.memory.limit": "1 GiB"}):
        assert sum(dt.train(num_rows, roles={"worker": 2}, data=data).results["worker"]) == len(data)
    with dask.config.set({"train.memory.limit": "lots"}), pytest.raises(ValueError, match="'lots', which is no size"):
        dt.train(num_rows, roles={"worker": 2}, data=data)


def test_what_is_in_shared_memory_already_counts(client, tmp_path):
    kept = dt.persist(blocks(tmp_path, 15))
    with (
        dask.config.set({"train.memory.limit": "100 MiB"}),
        pytest.raises(dt.DataError, match=r"takes 80\.00 MiB .* 2 Dask workers can take 49\.\d\d MiB"),
    ):
        dt.train(num_rows, roles={"worker": 1}, data=blocks(tmp_path, 8))
    assert dt.train(num_rows, roles={"worker": 1}, data=kept).results == {"worker": [len(kept)]}
    del kept


@pytest.mark.parametrize("streaming", [False, 8])
def test_sizes_that_nobody_knows_are_refused_by_the_dask_workers(client, streaming):
    def part(number):
        return pd.DataFrame({"a": np.full(5 * MB // 8, number, "f8")})

    data = dd.from_map(part, range(20))
    with (
        dask.config.set({"train.memory.limit": "12 MiB"}),
        pytest.raises(
            dt.DataError,
            match=r"A partition of data\['worker'\] can't be computed: MemoryError: the shared memory of Dask worker "
            r"tcp://\S+ would take 15,\d+,\d+ bytes, and train\.memory\.limit is 12,582,912; pass streaming=True, or",
        ),
    ):
        dt.train(num_rows, roles={"worker": 1}, data=data, streaming=streaming)


def test_the_limit_of_a_container_counts(dask_process, memory_cgroup, tmp_path):
    file = str(tmp_path / "s.json")
    with (
        dask_process("scheduler", "--port", "0", "--scheduler-file", file, path=tmp_path),
        dask_process("worker", "--scheduler-file", file, "--no-nanny", path=tmp_path) as worker,
        Client(scheduler_file=file) as client,
    ):
        client.wait_for_workers(1, timeout=30)
        (memory_cgroup / "cgroup.procs").write_text(str(worker.pid))
        folder = tmp_path / "computed"
        folder.mkdir()
        data = blocks(folder, 30)
        with pytest.raises(
            dt.DataError, match=r"takes 300\.00 MiB .*1 Dask workers can take 2\d\d\.\d\d MiB, less 100"
        ):
            dt.train(num_rows, roles={"worker": 1}, data=data, client=client)
        assert not list(folder.iterdir())
        unknown = data[data[:, 0] == 0]
        with pytest.raises(
            dt.DataError,
            match=r"MemoryError: the container of Dask worker tcp://\S+ has \d+,\d+,\d+ bytes left, and a part",
        ):
            dt.train(num_rows, roles={"worker": 1}, data=unknown, client=client)
        # What that has freed counts no more.
        assert dt.train(num_rows, roles={"worker": 1}, data=unknown, client=client, streaming=2).results == {
            "worker": [len(data)]
        }


PROGRAM = """
import os
import dask.array as da
from distributed import Client
import dask_train as dt

def total(session):
    return sum(int(batch.sum()) for batch in session.batches(batch_size=4096))

if __name__ == "__main__":
    there = os.statvfs("/dev/shm")
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        data = da.ones((200 * 256, 1024), chunks=(5 * 256, 1024), dtype="f4")
        result = dt.train(total, roles={"worker": 2}, data=data)
    print(there.f_blocks * there.f_frsize, sum(result.results["worker"]))
"""


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="only root can mount")
def test_a_small_dev_shm_does_not_matter(tmp_path):
    """As in a container of Docker, which has 64 MB."""
    (tmp_path / "program.py").write_text(PROGRAM)
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False, timeout=20).returncode:
        pytest.skip("nothing can be mounted here")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" program.py', sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.split() == [str(64 * MB), str(200 * MB // 4)], done.stderr
