"""A large table of which few rows are looked up: milliseconds a step, one process beside two workers.

    .venv/bin/python benchmarks/embeddings.py [--rows 5000000] [--repeats 3]

A table of ``--rows`` rows of 32 numbers, and a layer of 32 units behind it; a row of data looks up one index, and a
global batch has 1,024 rows. One process has two threads, two workers have one each.

A step is timed as the slope between epochs of two lengths, so that what an epoch does once, such as comparing the
workers' weights, is in the other figure, the seconds of an epoch without steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from recording import save, summary

BATCH_ROWS, WIDTH, EPOCHS, RATE = 1024, 32, 3, 0.1
STEPS = {"torch": (100, 500), "keras": (5, 25), "dense": (5, 25), "adam": (5, 25)}
TIMEOUT_S = 600.0
CASES = {
    "torch_loop": "torch: loop by hand, SGD, sparse",
    "torch_1": "torch: dt.fit, 1 worker, SGD, sparse",
    "torch_2": "torch: dt.fit, 2 workers, SGD, sparse",
    "keras_loop": "Keras on TensorFlow: model.fit, SGD",
    "keras_1": "Keras on TensorFlow: dt.fit, 1 worker, SGD",
    "keras_2": "Keras on TensorFlow: dt.fit, 2 workers, SGD",
    "dense_loop": "torch: loop by hand, SGD, dense",
    "dense_2": "torch: dt.fit, 2 workers, SGD, dense",
    "adam_loop": "Keras on TensorFlow: model.fit, Adam",
    "adam_2": "Keras on TensorFlow: dt.fit, 2 workers, Adam",
}


def data(rows: int, steps: int) -> tuple[Any, Any]:
    import numpy as np

    random = np.random.default_rng(0)
    x = random.integers(0, rows, (steps * BATCH_ROWS, 1))
    return x, random.random((len(x), 1), np.float32)


def figures(epochs: Sequence[Sequence[float]], steps: Sequence[int]) -> dict[str, float]:
    """Of the seconds of epochs of each length."""
    short, long = (statistics.median(several) for several in epochs)
    step_s = (long - short) / (steps[1] - steps[0])
    return {"step_ms": step_s * 1e3, "epoch_s": short - steps[0] * step_s}


def module(rows: int, *, sparse: bool) -> Any:
    import torch

    torch.manual_seed(0)
    n = torch.nn
    return n.Sequential(
        n.Embedding(rows, WIDTH, sparse=sparse), n.Flatten(), n.Linear(WIDTH, 32), n.ReLU(), n.Linear(32, 1)
    )


def torch_loop(rows: int, steps: Sequence[int], *, sparse: bool) -> dict[str, float]:
    import torch

    torch.set_num_threads(2)
    model, loss = module(rows, sparse=sparse), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    found = []
    for count in steps:
        x, y = map(torch.from_numpy, data(rows, count))
        took = []
        for _ in range(EPOCHS):
            begun = time.perf_counter()
            for first in range(0, len(x), BATCH_ROWS):
                optimizer.zero_grad()
                loss(model(x[first : first + BATCH_ROWS]), y[first : first + BATCH_ROWS]).backward()
                optimizer.step()
            took.append(time.perf_counter() - begun)
        found.append(took[1:])
    return figures(found, steps)


def keras_model(rows: int, optimizer: str) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([layers.Embedding(rows, WIDTH), layers.Flatten(), layers.Dense(32, "relu")])
    model.add(layers.Dense(1))
    model.compile(keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": RATE}}), "mse")
    return model


def keras_loop(rows: int, steps: Sequence[int], optimizer: str) -> dict[str, float]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(2)
    import keras

    class Times(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.begun = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            took.append(time.perf_counter() - self.begun)

    model, found = keras_model(rows, optimizer), []
    for count in steps:
        took: list[float] = []
        model.fit(*data(rows, count), batch_size=BATCH_ROWS, epochs=EPOCHS, verbose=0, callbacks=[Times()])
        found.append(took[1:])
    return figures(found, steps)


def fitted(rows: int, steps: Sequence[int], workers: int, make: Callable[[int], Any], **given: Any) -> dict[str, float]:
    from distributed import Client, LocalCluster

    import dask_train as dt

    sizes = {"n_workers": workers, "threads_per_worker": 2 // workers, "dashboard_address": None}
    found = []
    with LocalCluster(**sizes) as cluster, Client(cluster):
        for count in steps:
            result = dt.fit(
                make(rows),
                *data(rows, count),
                workers=workers,
                batch_size=BATCH_ROWS,
                epochs=EPOCHS + 1,
                verbose=0,
                **given,
            )
            ends = {each["epoch"]: each["time"] for each in result.scores if each.get("rank", 0) == 0}
            at = [ends[epoch] for epoch in sorted(ends)]
            found.append([later - earlier for earlier, later in itertools.pairwise(at)])
    return figures(found, steps)


def torch_fit(rows: int, steps: Sequence[int], workers: int, *, sparse: bool) -> dict[str, float]:
    import torch

    given = {"loss": torch.nn.MSELoss(), "optimizer": partial(torch.optim.SGD, lr=RATE)}
    return fitted(rows, steps, workers, partial(module, sparse=sparse), **given)


def keras_fit(rows: int, steps: Sequence[int], workers: int, optimizer: str) -> dict[str, float]:
    return fitted(rows, steps, workers, partial(keras_model, optimizer=optimizer))


_RUNS: dict[str, Callable[[int, Sequence[int]], dict[str, float]]] = {
    "torch_loop": partial(torch_loop, sparse=True),
    "torch_1": partial(torch_fit, workers=1, sparse=True),
    "torch_2": partial(torch_fit, workers=2, sparse=True),
    "keras_loop": partial(keras_loop, optimizer="SGD"),
    "keras_1": partial(keras_fit, workers=1, optimizer="SGD"),
    "keras_2": partial(keras_fit, workers=2, optimizer="SGD"),
    "dense_loop": partial(torch_loop, sparse=False),
    "dense_2": partial(torch_fit, workers=2, sparse=False),
    "adam_loop": partial(keras_loop, optimizer="Adam"),
    "adam_2": partial(keras_fit, workers=2, optimizer="Adam"),
}


def measured(case: str, rows: int) -> dict[str, float]:
    """One run of a case in a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--rows", str(rows)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="default: all")
    parser.add_argument("--case", choices=_RUNS, help="run this one here, and print its figures")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(_RUNS[options.case](options.rows, STEPS[options.case.partition("_")[0]])))
        return
    several = [{case: measured(case, options.rows) for case in options.cases} for _ in range(options.repeats)]
    found = {
        case: {name: summary([one[case][name] for one in several]) for name in several[0][case]}
        for case in options.cases
    }
    for case, what in CASES.items():
        if case not in found:
            continue
        middle = {name: figure["median"] for name, figure in found[case].items()}
        print(f"{what:44} {middle['step_ms']:8.2f} ms a step, {middle['epoch_s']:5.2f} s an epoch besides", flush=True)
    save(f"embeddings-{options.rows // 10**6}m", {"rows": options.rows, **found})


if __name__ == "__main__":
    main()
