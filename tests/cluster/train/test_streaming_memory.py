"""Streamed data that is larger than all memory of the Dask workers, on a cluster of its own."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client

import dask_train as dt

pytestmark = pytest.mark.slow

MB = 1 << 20
LIMIT = 300 * MB
BLOCKS = 240
ROWS, COLUMNS = 2560, 1024  # of a block: 10 MB


def memory_of(pid):
    """Bytes of a process, its share of all that is no shared memory; and the bytes of the pools that it has open."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    pools = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        file = f"/proc/{pid}/fd/{number}"
        with suppress(FileNotFoundError):
            if os.readlink(file).startswith("/memfd:dask-train "):
                found = os.stat(file)
                pools[found.st_ino] = found.st_blocks * 512
    return (kilobytes["Pss_Anon"] + kilobytes["Pss_File"]) * 1024, pools


class Sampler:
    """The memory of this process and all that it started, ten times a second until the ``with`` ends."""

    def __init__(self, scheduler):
        self.samples = []
        self.states = set()
        self._scheduler = scheduler
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _watch(self):
        while not self._over.is_set():
            self.samples.append(total_memory())
            self.states |= {worker.status.name for worker in self._scheduler.workers.values()}
            self._over.wait(0.1)


def total_memory():
    """Bytes of all processes, without and with shared memory."""
    own, pools = 0, {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(ProcessLookupError, FileNotFoundError, IndexError, KeyError):  # it is gone, or about to go
            its, of_process = memory_of(process.pid)
            own += its
            pools.update(of_process)
    return own, sum(pools.values())


def block_of(block_info=None):
    number = block_info[None]["chunk-location"][0]
    return np.full((ROWS, COLUMNS), number, "f4")


def test_four_times_the_memory_of_all_dask_workers(make_cluster):
    def worker(session):
        blocks = {}
        for x in session.batches(batch_size=1024):
            assert (x[:, 0] == x[:, -1]).all()
            for number, count in zip(*np.unique(x[:, 0], return_counts=True), strict=True):
                blocks[int(number)] = blocks.get(int(number), 0) + int(count)
        return blocks

    assert BLOCKS * ROWS * COLUMNS * 4 == 4 * 2 * LIMIT
    cluster = make_cluster(n_workers=2, threads_per_worker=1, memory_limit=LIMIT)
    with Client(cluster) as client:
        pids = client.run(os.getpid)
        data = da.map_blocks(block_of, chunks=((ROWS,) * BLOCKS, COLUMNS), dtype="f4")
        dt.train(lambda session: None, roles={"worker": 2}, data=np.arange(4))  # all is imported
        own, pool = total_memory()
        started = time.monotonic()
        with Sampler(cluster.scheduler) as sampler:
            result = dt.train(worker, roles={"worker": 2}, data=data, streaming=4)
        took = time.monotonic() - started
        most = max(sum(sample) for sample in sampler.samples) - own - pool
        pools = max(pool for _, pool in sampler.samples)
        print(f"{most / MB:.0f} MB beyond {own / MB:.0f} MB at most, {pools / MB:.0f} MB of them shared; {took:.1f} s")
        first, second = result.results["worker"]
        assert {number: first.get(number, 0) + second.get(number, 0) for number in range(BLOCKS)} == dict.fromkeys(
            range(BLOCKS), ROWS
        )
        assert pools >= 2 * 4 * 10 * MB  # it was looked at while it went on
        assert most < 2 * LIMIT
        assert client.run(os.getpid) == pids
        assert sampler.states == {"running"}
        assert result.ledger.trained == BLOCKS * ROWS
