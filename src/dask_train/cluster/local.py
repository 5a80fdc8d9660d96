"""Local clusters that dask-train starts: one Dask worker process a task, deaf to the terminal's Ctrl-C."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

from distributed import Client, LocalCluster

from dask_train.compat.python import start_dask_workers_without_main


def start_local_cluster(num_workers: int, **settings: Any) -> LocalCluster:
    """Return a LocalCluster of ``num_workers`` processes with one thread each, whose Dask workers never see a Ctrl-C.

    SIGINT is blocked while it starts. Threads and processes inherit that: the cluster's event loop, and so every Dask
    worker that it will ever spawn. A Ctrl-C reaches this program's main thread alone, which can close in order; one
    that comes during the start is delivered right after it.

    Dask workers don't import the program that calls, as they would of a ``LocalCluster`` that it starts by itself.
    """
    start_dask_workers_without_main()
    # Started first: it unblocks SIGINT in the thread that starts it (multiprocessing/resource_tracker.py).
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # another cluster may have the usual port
            **{"silence_logs": logging.ERROR, **settings},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def local_client(num_workers: int, **settings: Any) -> Iterator[Client]:
    """Start a local cluster, and a client of it, that end with the ``with``."""
    with start_local_cluster(num_workers, **settings) as cluster, Client(cluster) as client:
        yield client
