"""Milliseconds a step on two workers, with losses that get the rows of all, against losses that are summed by row.

    .venv/bin/python benchmarks/gathered_losses.py [--rounds 3] [--two-hosts] [--small]

Four models, each with the same loss twice. ``by row`` is Keras' own, of which each worker computes the sum over its
rows. ``gathered`` is a function that calls it, of which nothing is known: each worker gets the outputs and targets of
the global batch and computes the loss of all. CLIP compares rows, by ``dt.keras.global_batch``; its ``by row`` takes
the distance of each pair, which is another loss and costs less.

Two workers with a core each, in turns within a round. Of the epochs after the first, the median; of these, the median
of the rounds. The first epoch has the trace of the step. With ``--two-hosts`` each worker is on a host of its own, a
network namespace of this machine (``tests/cluster/hosts.py``), which needs root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from distributed import Client, LocalCluster
from keras import layers, ops
from recording import save, summary

import dask_train as dt

EPOCHS = 3
WAYS = ("by row", "gathered")


@dataclass(frozen=True)
class Case:
    """Rows of a batch, and steps of an epoch."""

    batch_size: int
    steps: int


CASES = {
    "MNIST, CNN": Case(128, 60),
    "segmentation, 1 M outputs": Case(16, 8),
    "language, 32,000 classes": Case(16, 8),
    "CLIP, 512 features": Case(256, 40),
}


class Clock(keras.callbacks.Callback):
    """When each epoch has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())

    def step_ms(self, steps: int) -> float:
        """The median epoch's, without the first one."""
        return 1e3 * statistics.median(np.diff(self.times)[1:].tolist()) / steps


class Clip(keras.Model):
    """Pairs, of which each row is compared with the rows of all workers."""

    def compute_loss(self, *given: Any) -> Any:
        """Return the symmetrical loss of pairs, of what Keras gives: x, y, y_pred and weights."""
        one, other = dt.keras.global_batch(given[2])
        alike, right = ops.matmul(one, ops.transpose(other)) / 0.1, ops.arange(ops.shape(one)[0])
        loss = keras.losses.sparse_categorical_crossentropy
        both = loss(right, alike, from_logits=True) + loss(right, ops.transpose(alike), from_logits=True)
        return ops.mean(both) / 2


class Distances(keras.Model):
    """Pairs, of which no row is compared with others."""

    def compute_loss(self, *given: Any) -> Any:
        """Return the mean squared distance within pairs, of what Keras gives: x, y, y_pred and weights."""
        one, other = given[2]
        return ops.mean(ops.sum(ops.square(one - other), axis=-1))


def cross_entropy(y: Any, p: Any) -> Any:
    """Keras' own, in a function of which nothing is known."""
    return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)


def binary_cross_entropy(y: Any, p: Any) -> Any:
    """As :func:`cross_entropy`."""
    return keras.losses.binary_crossentropy(y, p, from_logits=True)


def made(name: str, way: str) -> tuple[Any, Any, Any]:
    """The model, and rows for an epoch."""
    case, random = CASES[name], np.random.default_rng(0)
    rows = case.batch_size * case.steps
    keras.utils.set_random_seed(1)
    by_class = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if way == "by row" else cross_entropy
    if name.startswith("MNIST"):
        found: Any = keras.Sequential([layers.Input((28, 28, 1)), layers.Conv2D(16, 3, activation="relu")])
        for layer in (layers.MaxPooling2D(2), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2)):
            found.add(layer)
        found.add(layers.Flatten())
        found.add(layers.Dense(10))
        found.compile("adam", by_class)
        return found, random.random((rows, 28, 28, 1), np.float32), random.integers(0, 10, rows)
    if name.startswith("segmentation"):
        found = keras.Sequential([layers.Input((256, 256, 3))])
        for filters in (8, 8, 1):
            found.add(layers.Conv2D(filters, 3, padding="same", activation="relu" if filters > 1 else None))
        own = keras.losses.BinaryCrossentropy(from_logits=True) if way == "by row" else binary_cross_entropy
        found.compile("adam", own)
        pictures = random.random((rows, 256, 256, 3), np.float32)
        return found, pictures, (pictures[..., :1] > 0.5).astype("float32")
    if name.startswith("language"):
        found = keras.Sequential(
            [
                layers.Input((8,), dtype="int32"),
                layers.Embedding(32_000, 64),
                layers.GRU(64, return_sequences=True),
                layers.Dense(32_000),
            ]
        )
        found.compile("adam", by_class)
        words = random.integers(0, 32_000, (rows, 9)).astype("int32")
        return found, words[:, :-1], words[:, 1:]
    inputs = [layers.Input((768,), name="image"), layers.Input((512,), name="text")]
    features = [layers.Dense(512)(layers.Dense(1024, activation="relu")(one)) for one in inputs]
    kind = Clip if way == "gathered" else Distances
    found = kind(
        dict(zip(("image", "text"), inputs, strict=True)), [layers.UnitNormalization()(one) for one in features]
    )
    found.compile("adam")
    given = {"image": random.random((rows, 768), np.float32), "text": random.random((rows, 512), np.float32)}
    return found, given, None


def step_ms(name: str, way: str, client: Client) -> float:
    """Milliseconds a step of ``dt.fit`` on two workers."""
    model, x, y = made(name, way)
    clock, case = Clock(), CASES[name]
    dt.fit(
        model,
        x,
        y,
        batch_size=case.batch_size,
        epochs=EPOCHS,
        shuffle=False,
        workers=2,
        callbacks=[clock],
        client=client,
        verbose=0,
    )
    return clock.step_ms(case.steps)


@contextmanager
def workers(*, on_two_hosts: bool) -> Iterator[Client]:
    """Start two Dask workers of one thread, on this host or on one each."""
    if on_two_hosts:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
        from hosts import hosts

        with hosts(2) as cluster:
            yield cluster.client
    else:
        local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        with local as cluster, Client(cluster) as client:
            yield client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--two-hosts", action="store_true", help="between two simulated hosts; another file")
    parser.add_argument("--small", action="store_true", help="a round, and no file: does it all work?")
    args = parser.parse_args()
    runs: list[dict[str, float]] = []
    with workers(on_two_hosts=args.two_hosts) as client:
        for number in range(1 if args.small else args.rounds):
            runs.append({f"{name}, {way}": step_ms(name, way, client) for name in CASES for way in WAYS})
            print(
                f"round {number + 1}: " + "; ".join(f"{name} {ms:.1f} ms" for name, ms in runs[-1].items()), flush=True
            )
    figures: dict[str, Any] = {name: summary([run[name] for run in runs]) for name in runs[0]}
    for name in CASES:
        over = summary([run[f"{name}, gathered"] / run[f"{name}, by row"] for run in runs])
        figures[f"{name}, gathered over by row"] = over
        print(f"{name}: {over['median']:.2f} ({over['min']:.2f} to {over['max']:.2f})")
    if not args.small:
        save(
            "gathered_losses_two_hosts" if args.two_hosts else "gathered_losses", {"epochs": EPOCHS, "figures": figures}
        )


if __name__ == "__main__":
    main()
