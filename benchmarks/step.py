"""Milliseconds a step of small models: ``dt.fit`` against Keras' own ``fit`` on the same cores.

    .venv/bin/python benchmarks/step.py [--rounds 5] [--small]

Two models whose steps take about as long as what is around them: an MLP 20-32-1 with batches of 64 rows, and an MLP
784-256-256-10 with batches of 128. ``one worker`` has both cores, as Keras has in a process of its own, right before
it; ``two workers`` have one each. Epochs of 400 steps: of the epochs after the first, the median; of these, the median
of the rounds. A callback that only tells the time when an epoch begins is there in all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt

STEPS, EPOCHS = 400, 6
# Columns, hidden layers, outputs, rows of a batch; and the aims, over Keras' step, of one worker and of two.
MODELS = {
    "MLP 20-32-1": (20, (32,), 1, 64),
    "MLP 784-256-256-10": (784, (256, 256), 10, 128),
}
AIMS = {"MLP 20-32-1": (1.03, 1.5), "MLP 784-256-256-10": (1.03, 1.15)}


class Clock(keras.callbacks.Callback):
    """When each epoch has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())

    def step_ms(self) -> float:
        """The median epoch's, without the first one."""
        return 1e3 * statistics.median(np.diff(self.times)[1:].tolist()) / STEPS


def case(name: str) -> tuple[Any, np.ndarray, np.ndarray, int]:
    """The model, and rows for an epoch."""
    columns, hidden, outputs, batch_size = MODELS[name]
    random = np.random.default_rng(0)
    x = random.random((batch_size * STEPS, columns), np.float32)
    y = random.random((len(x), 1), np.float32) if outputs == 1 else random.integers(0, outputs, len(x))
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(units, activation="relu") for units in hidden]
    model = keras.Sequential([keras.layers.Input((columns,)), *layers, keras.layers.Dense(outputs)])
    loss = "mse" if outputs == 1 else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss)
    return model, x, y, batch_size


def ours(name: str, client: Client, workers: int) -> float:
    """Milliseconds a step of ``dt.fit``."""
    model, x, y, batch_size = case(name)
    clock = Clock()
    dt.fit(
        model,
        x,
        y,
        batch_size=batch_size,
        epochs=EPOCHS,
        shuffle=False,
        workers=workers,
        callbacks=[clock],
        client=client,
    )
    return clock.step_ms()


def keras_fit(name: str) -> float:
    """Milliseconds a step of Keras' ``fit``, in this process."""
    model, x, y, batch_size = case(name)
    clock = Clock()
    model.fit(x, y, batch_size=batch_size, epochs=EPOCHS, shuffle=False, callbacks=[clock], verbose=0)
    return clock.step_ms()


def keras_elsewhere(name: str) -> float:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--keras", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()[-1])


def round_of(clients: dict[int, Client]) -> dict[str, float]:
    """Each model with Keras, with one worker, and with two."""
    found = {}
    for name in MODELS:
        found[f"{name}, Keras"] = keras_elsewhere(name)
        for workers, client in clients.items():
            found[f"{name}, {workers} worker{'s' * (workers > 1)}"] = ours(name, client, workers)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a round, and no file: does it all work?")
    parser.add_argument("--keras", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.keras:
        print(keras_fit(args.keras))
        return
    runs: list[dict[str, float]] = []
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0") as one,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as two,
        Client(one) as client_of_one,
        Client(two) as client_of_two,
    ):
        for number in range(1 if args.small else args.rounds):
            runs.append(round_of({1: client_of_one, 2: client_of_two}))
            print(
                f"round {number + 1}: " + "; ".join(f"{name} {ms:.2f} ms" for name, ms in runs[-1].items()), flush=True
            )
    figures: dict[str, Any] = {name: summary([run[name] for run in runs]) for name in runs[0]}
    for name, aims in AIMS.items():
        for which, aim in zip(("1 worker", "2 workers"), aims, strict=True):
            over = summary([run[f"{name}, {which}"] / run[f"{name}, Keras"] for run in runs])
            figures[f"{name}, {which} over Keras"] = over
            print(f"{name}, {which} over Keras: {over['median']:.2f} (aim: at most {aim})")
    if not args.small:
        save("step", {"steps": STEPS, "epochs": EPOCHS, "figures": figures})


if __name__ == "__main__":
    main()
