"""One process of ``backends.py``: trains the CNN on Keras' backend of this process, and prints its figures as JSON.

python backends_fit.py WORKERS STEPS     WORKERS: of ``dt.fit``; 0 for Keras' own ``fit`` with as many cores as 2 have
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from fit_peers import BATCH_ROWS, cnn, rows

NUM_WORKERS, EPOCH_STEPS = 2, 100


class Clock(keras.callbacks.Callback):
    """When each epoch has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())


def take_threads(count: int) -> None:
    """Compute with so many; before the backend has done anything."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(count)
    elif backend == "torch":
        import torch

        torch.set_num_threads(count)
    else:
        os.environ["NPROC"] = str(count)


def our_fit(model: Any, settings: dict[str, Any], workers: int) -> Any:
    """Train on a cluster whose workers have that many cores together."""
    from distributed import Client, LocalCluster

    import dask_train as dt

    cluster = LocalCluster(
        n_workers=workers, threads_per_worker=NUM_WORKERS // workers, dashboard_address="127.0.0.1:0"
    )
    with cluster, Client(cluster) as client:
        return dt.fit(model, client=client, workers=workers, **settings)


def measured(workers: int, steps: int) -> dict[str, float]:
    """Milliseconds a step of epochs of 100 steps, after one; of ``dt.fit`` the share of it that workers agree."""
    if not workers:
        take_threads(NUM_WORKERS)
    pairs = [rows(rank) for rank in range(NUM_WORKERS)]
    model, clock, epochs = cnn(keras), Clock(), 2 + -(-steps // EPOCH_STEPS)
    model.compile(keras.optimizers.SGD(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    settings = {
        **{name: np.concatenate([pair[place] for pair in pairs]) for place, name in enumerate("xy")},
        "batch_size": BATCH_ROWS * NUM_WORKERS,
        "epochs": epochs,
        "shuffle": False,
        "callbacks": [clock],
    }
    result = our_fit(model, settings, workers) if workers else None
    if not workers:
        model.fit(verbose=0, **settings)
    step_ms = 1e3 * (clock.times[-1] - clock.times[1]) / (EPOCH_STEPS * (epochs - 2))
    if result is None:
        return {"step_ms": step_ms}
    of_step = 1e3 / (EPOCH_STEPS * epochs) / step_ms
    return {"step_ms": step_ms, "agreeing": result.all_reduce_s * of_step, "waiting": result.waiting_s * of_step}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), int(sys.argv[2]))), flush=True)
