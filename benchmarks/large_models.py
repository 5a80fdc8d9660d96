"""Large modules of torch: seconds an epoch, the start, the end and memory, beside DDP on gloo and the loop by hand.

    .venv/bin/python benchmarks/large_models.py [--hidden 8192] [--repeats 3]

A perceptron of ``--hidden`` units in two layers (8192: 100 million weights, 403 MB; 3072: 14 million), SGD, global
batches of 64 rows, epochs of 8 steps.

* The loop by hand, and ``dt.fit`` with one worker: two threads each.
* DistributedDataParallel on gloo, and ``dt.fit`` with two workers: two processes of one thread each.

Told are the medians of epochs after the first; for ``dt.fit`` also the seconds from the call to the first step (the end
of the first epoch less one epoch), and from the end of the last epoch to the result. Memory is the peak of all
processes together, less that of the same program with a small module.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from local_network import unused_ports
from peak_memory import peak_memory
from recording import save, summary

ROWS, BATCH_ROWS, EPOCHS, RATE = 512, 64, 4, 1e-3
SMALL, TIMEOUT_S = 8, 300.0
CASES = {
    "loop": "loop by hand, 2 threads",
    "fit1": "dt.fit, 1 worker",
    "ddp": "DDP, 2 processes",
    "fit2": "dt.fit, 2 workers",
}


def module(hidden: int) -> Any:
    import torch

    torch.manual_seed(0)
    n = torch.nn
    return n.Sequential(
        n.Linear(hidden // 2, hidden), n.ReLU(), n.Linear(hidden, hidden), n.ReLU(), n.Linear(hidden, 10)
    )


def epochs_of(model: Any, hidden: int, rows: int, batch_rows: int) -> list[float]:
    """Seconds of each epoch of a loop by hand."""
    import torch

    optimizer, loss = torch.optim.SGD(model.parameters(), RATE), torch.nn.CrossEntropyLoss()
    x, y = torch.rand(rows, hidden // 2), torch.randint(0, 10, (rows,))
    took = []
    for _ in range(EPOCHS):
        begun = time.perf_counter()
        for first in range(0, rows, batch_rows):
            optimizer.zero_grad()
            loss(model(x[first : first + batch_rows]), y[first : first + batch_rows]).backward()
            optimizer.step()
        took.append(time.perf_counter() - begun)
    return took


def loop(hidden: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(2)
    return {"epoch_s": statistics.median(epochs_of(module(hidden), hidden, ROWS, BATCH_ROWS)[1:])}


def ddp(hidden: int) -> dict[str, float]:
    """Start both processes, and tell what the first one has printed."""
    (port,) = unused_ports(1)
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--case", "ddp_rank", "--hidden", str(hidden)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    found: dict[str, float] = json.loads(outputs[0])
    return found


def ddp_rank(hidden: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(module(hidden))
    took = epochs_of(model, hidden, ROWS // 2, BATCH_ROWS // 2)
    torch.distributed.destroy_process_group()
    return {"epoch_s": statistics.median(took[1:])}


def fit(workers: int, hidden: int) -> dict[str, float]:
    import numpy as np
    import torch
    from distributed import Client, LocalCluster

    import dask_train as dt

    random = np.random.default_rng(0)
    x, y = random.random((ROWS, hidden // 2), np.float32), random.integers(0, 10, ROWS)
    fitted = partial(
        dt.fit,
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(torch.optim.SGD, lr=RATE),
        workers=workers,
        batch_size=BATCH_ROWS,
        verbose=0,
    )
    sizes = {"n_workers": workers, "threads_per_worker": 2 // workers, "dashboard_address": None}
    with LocalCluster(**sizes) as cluster, Client(cluster):
        fitted(torch.nn.Linear(4, 2), np.ones((100, 4), np.float32), np.zeros(100, int))  # imports
        model, begun = module(hidden), time.time()
        result = fitted(model, x, y, epochs=EPOCHS)
        ended = time.time()
    ends = {score["epoch"]: score["time"] for score in result.scores if score.get("rank", 0) == 0 and "epoch" in score}
    at = [ends[epoch] for epoch in sorted(ends)]
    epoch_s = statistics.median(later - earlier for earlier, later in itertools.pairwise(at))
    return {"epoch_s": epoch_s, "start_s": at[0] - begun - epoch_s, "end_s": ended - at[-1]}


_RUNS: dict[str, Callable[[int], dict[str, float]]] = {
    "loop": loop,
    "ddp": ddp,
    "ddp_rank": ddp_rank,
    "fit1": partial(fit, 1),
    "fit2": partial(fit, 2),
}


def measured(case: str, hidden: int) -> dict[str, float]:
    """One run of a case in processes of its own."""
    runs = {
        size: peak_memory([sys.executable, __file__, "--case", case, "--hidden", str(size)], TIMEOUT_S)
        for size in (hidden, SMALL)
    }
    found: dict[str, float] = json.loads(runs[hidden]["output"].splitlines()[-1])
    return {**found, "memory_bytes": runs[hidden]["peak_bytes"] - runs[SMALL]["peak_bytes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", choices=_RUNS, help="run this one here, and print its figures")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(_RUNS[options.case](options.hidden)))
        return
    several = [{case: measured(case, options.hidden) for case in CASES} for _ in range(options.repeats)]
    figures = {
        case: {name: summary([one[case][name] for one in several]) for name in several[0][case]} for case in CASES
    }
    for case, what in CASES.items():
        middle = {name: figure["median"] for name, figure in figures[case].items()}
        told = f"{what:24} {middle['epoch_s']:6.2f} s an epoch, {middle['memory_bytes'] / 1e9:5.2f} GB"
        if "start_s" in middle:
            told += f", first step after {middle['start_s']:.1f} s, result {middle['end_s']:.1f} s after the last epoch"
        print(told, flush=True)
    weights = (options.hidden // 2) * options.hidden + options.hidden**2 + 12 * options.hidden + 10
    save(f"large-{weights // 10**6}m", {"weights": weights, **figures})


if __name__ == "__main__":
    main()
