"""A scheduler in a process of its own that is killed, or hangs, while a run goes on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import dask
import pytest
from distributed import Client

import dask_train as dt


def report_for_ever(session):
    session.report(pid=os.getpid())
    while True:
        session.report(beat=1)
        time.sleep(0.05)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_ends_with_its_scheduler(fault, tmp_path, dask_process, wait_for, is_alive):
    file = str(tmp_path / "scheduler.json")
    options = ["--scheduler-file", file, "--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path)]
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s", "train.progress.timeout": "6s"}),
        dask_process("scheduler", "--port", "0", "--scheduler-file", file, path=tmp_path) as scheduler,
        dask_process("worker", *options, path=tmp_path),
    ):
        client = Client(scheduler_file=file)
        try:
            run = dt.train(report_for_ever, roles={"worker": 1}, wait=False)
            pid = next(iter(run.scores()))["pid"]
            scheduler.send_signal(fault)
            with pytest.raises(dt.DaskTrainError, match="The Dask scheduler did not answer"):
                run.result(60)
            assert run.status()["phase"] == "over"
            wait_for(lambda: not is_alive(pid), "its role is gone")
            with pytest.raises(dt.DaskTrainError):
                dt.train(report_for_ever, roles={"worker": 1}, progress=False)
        finally:
            scheduler.kill()
            with suppress(RuntimeError, OSError):
                client.close(timeout=5)
