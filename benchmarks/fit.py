"""Steps a second of ``dt.fit`` on 2 workers, against the other ways to train the same network on them.

    .venv/bin/python benchmarks/fit.py [--rounds 5] [--tf-keras PYTHON] [--small]

The network has 2.8 million weights (11 MB of gradients); each of 2 processes has 64 rows of 28 x 28 in a step, and a
thread. Peers (``fit_peers.py``): ``fit`` of Keras 2 (tf_keras) under ``MultiWorkerMirroredStrategy``, in an
environment of its own; a loop by hand with Keras 3 under that strategy; DistributedDataParallel on gloo; and one
process with both cores and 128 rows. All in turn in each round; medians of the rounds. ``agreeing`` is the part of a
step that a worker of ours spends on sums and on waiting for the other in them, ``waiting`` the latter alone, as the
first worker counts it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from distributed import Client, LocalCluster
from fit_peers import BATCH_ROWS, PEERS, STEPS, WARM_STEPS, cnn, rows
from local_network import unused_ports
from recording import save, summary

import dask_train as dt

NUM_WORKERS = 2
AIMS = {"tf_keras fit": 2.8, "mirrored loop": 1.5, "torch DDP": 1.0}


class Clock(keras.callbacks.Callback):
    """When each step of the epochs after the first has ended, in the first worker."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())


def ours(client: Client, steps: int) -> dict[str, float]:
    """Milliseconds a step of epochs of 100 steps, and the share of it that workers agree."""
    pairs = [rows(rank) for rank in range(NUM_WORKERS)]
    x, y = (np.concatenate([pair[place] for pair in pairs]) for place in (0, 1))
    model, clock = cnn(keras), Clock()
    model.compile(keras.optimizers.SGD(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    epochs = 1 + 2 * steps // 100
    result = dt.fit(
        model,
        x,
        y,
        batch_size=BATCH_ROWS * NUM_WORKERS,
        epochs=epochs,
        shuffle=False,
        workers=NUM_WORKERS,
        callbacks=[clock],
        client=client,
    )
    step_ms = 1e3 * (clock.times[-1] - clock.times[1]) / (100 * (epochs - 2))
    of_step = 1e3 / (100 * epochs) / step_ms
    return {"step_ms": step_ms, "agreeing": result.all_reduce_s * of_step, "waiting": result.waiting_s * of_step}


def peer(name: str, python: str) -> float:
    """Milliseconds a step: the slower one of its processes."""
    ports = ",".join(map(str, unused_ports(NUM_WORKERS)))
    script = str(Path(__file__).with_name("fit_peers.py"))
    num_processes = 1 if name == "one process" else NUM_WORKERS
    processes = [
        subprocess.Popen([python, script, name, str(rank), ports], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for rank in range(num_processes)
    ]
    told = [float(process.communicate(timeout=300)[0].split()[-1]) for process in processes]
    return 1e3 * max(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tf-keras", help="a Python that has tf_keras; without it that peer is left out")
    parser.add_argument("--small", action="store_true", help="a round, and no file: does it all work?")
    args = parser.parse_args()
    pythons = dict.fromkeys(PEERS, sys.executable) | {"tf_keras fit": args.tf_keras}
    names = [name for name in PEERS if pythons[name] and name != "jax.distributed"]
    runs: list[dict[str, float]] = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        for number in range(1 if args.small else args.rounds):
            with Client(cluster) as client:
                found = {f"ours {name}": value for name, value in ours(client, STEPS).items()}
            found |= {name: peer(name, pythons[name]) for name in names}
            runs.append(found)
            told = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            print(f"round {number + 1}: {told}", flush=True)
    figures: dict[str, Any] = {name: summary([run[name] for run in runs]) for name in runs[0]}
    for name in names:
        figures[f"{name} over ours"] = summary([run[name] / run["ours step_ms"] for run in runs])
        aim = f" (aim: {AIMS[name]})" if name in AIMS else ""
        print(f"{name} over ours: {figures[f'{name} over ours']['median']:.2f}{aim}")
    step_ms, agreeing, waiting = (figures[f"ours {name}"]["median"] for name in ("step_ms", "agreeing", "waiting"))
    print(f"ours: {step_ms:.1f} ms a step, {agreeing:.0%} of it agreeing, {waiting:.0%} of it waiting in that")
    if not args.small:
        save("fit", {"warm steps": WARM_STEPS, "steps": STEPS, "figures": figures})


if __name__ == "__main__":
    main()
