"""How fast rows in the client's memory get to the workers of a fit, and what memory that takes.

    python benchmarks/client_rows.py [--rounds 3] [--gb 1.0]

Rows of 250 float32 and a target, NumPy and pandas, plain and made Dask collections, are trained on for one epoch by two
workers (a Keras model of two small layers), and put into shared memory. Beside them in each round: the same fit of rows
that Dask holds already, and Keras' own ``fit`` in this process. Scheduler and Dask workers are processes of their own.

Memory is that of all processes (PSS) and of the scheduler (RSS), every 50 ms, less what it was before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "torch")

import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import psutil
from distributed import Client, wait
from recording import save, summary

import dask_train as dt

WIDTH, BATCH_ROWS, PARTITIONS = 250, 50_000, 20
LOOK_S, SETTLE_S = 0.05, 2.0


@contextmanager
def cluster() -> Iterator[tuple[Client, psutil.Process]]:
    """Start a scheduler and two Dask workers of one thread; the client, and the scheduler's process."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"]
    scheduler = subprocess.Popen([*command, "--no-dashboard"], stderr=subprocess.PIPE, text=True)
    processes = [scheduler]
    try:
        assert scheduler.stderr is not None
        address = next(line.split("Scheduler at:")[1].strip() for line in scheduler.stderr if "Scheduler at:" in line)
        threading.Thread(target=scheduler.stderr.read, daemon=True).start()  # so that it can write on
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
        processes += [subprocess.Popen(worker, stderr=subprocess.DEVNULL) for _ in range(2)]
        with Client(address) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, psutil.Process(scheduler.pid)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def memory() -> int:
    """Bytes of this process and all that it has started, shared memory counted once."""
    total = 0
    for process in [own := psutil.Process(), *own.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total


def measured(do: Callable[[], Any], scheduler: psutil.Process) -> dict[str, float]:
    """Seconds that a case takes, and the most memory meanwhile over that before."""
    before, resting = memory(), scheduler.memory_info().rss
    most, most_resting, ended = [before], [resting], threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            most.append(memory())
            most_resting.append(scheduler.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    began = time.perf_counter()
    do()
    took = time.perf_counter() - began
    ended.set()
    looking.join()
    return {
        "seconds": took,
        "memory_gb": (max(most) - before) / 1e9,
        "scheduler_gb": (max(most_resting) - resting) / 1e9,
    }


def model() -> keras.Model:
    """A model whose steps take little beside the rows."""
    made = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def cases(gb: float) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    rows = int(gb * 1e9 / 4 / WIDTH)
    x = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    y = x[:, :1].copy()
    names = [f"x{number}" for number in range(WIDTH)]
    frame = pd.DataFrame(x, columns=names, copy=False).assign(y=y[:, 0])
    size = -(-rows // PARTITIONS)
    settings: dict[str, Any] = {"batch_size": BATCH_ROWS, "epochs": 1, "verbose": 0}
    ours = {**settings, "workers": 2}
    columns = {"features": names, "label": "y"}

    def frames() -> dd.DataFrame:
        return dd.from_pandas(frame, npartitions=PARTITIONS)

    def arrays() -> tuple[da.Array, da.Array]:
        return da.from_array(x, chunks=(size, WIDTH)), da.from_array(y, chunks=(size, 1))

    held: list[da.Array] = []

    def hold() -> None:
        held[:] = [array.persist() for array in arrays()]
        wait(held)

    return {
        "fit, NumPy": lambda: dt.fit(model(), x, y, **ours),
        "fit, da.from_array": lambda: dt.fit(model(), *arrays(), **ours),
        "fit, pandas": lambda: dt.fit(model(), frame, **columns, **ours),
        "fit, dd.from_pandas": lambda: dt.fit(model(), frames(), **columns, **ours),
        "dt.persist, NumPy": lambda: dt.persist(x, y, progress=False),
        "persisted by Dask": hold,
        "fit, persisted by Dask": lambda: (dt.fit(model(), *held, **ours), held.clear()),
        "Keras' fit": lambda: model().fit(x, y, **settings),
    }


def main() -> None:
    """Take the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gb", type=float, default=1.0)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with cluster() as (_, scheduler):
        for do in cases(0.01).values():  # all is imported, and templates are up
            do()
        for number in range(given.rounds):
            for name, do in cases(given.gb).items():
                figures = measured(do, scheduler)
                found.setdefault(name, []).append(figures)
                told = ", ".join(f"{what} {value:.2f}" for what, value in figures.items())
                print(f"{number + 1}: {name}: {told}", flush=True)
                time.sleep(SETTLE_S)  # what is released is let go
    summaries = {name: {what: summary([run[what] for run in runs]) for what in runs[0]} for name, runs in found.items()}
    save("client_rows", {"gb": given.gb, "cases": summaries})


if __name__ == "__main__":
    main()
