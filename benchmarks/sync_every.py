"""Accuracy on MNIST of torch modules that are summed every few steps, against the same ``dt.fit`` with a sum in each.

    .venv/bin/python benchmarks/sync_every.py [--seeds 3] [--small]

A CNN of 0.2 million weights, 3 epochs of 20,000 rows in global batches of 128, AdamW, with two and four workers: for
each ``sync_every=`` (1: a sum in each step) the accuracy on the 10,000 test rows after the last epoch, in percent, as
mean, lowest and highest over the seeds. Workers share the machine, so seconds say nothing; see ``two_hosts.py``.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

import numpy as np
import torch
from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt
from dask_train.datasets import load_mnist

EPOCHS, BATCH_SIZE = 3, 128
WORKERS = (2, 4)
EVERY = (1, 10, 50)


def cnn() -> torch.nn.Module:
    """Return a CNN whose accuracy still rises in the third epoch."""
    nn = torch.nn
    convolutions = nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(800, 224), nn.ReLU(), nn.Linear(224, 10))


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the fraction of rows whose class was found."""
    return (output.argmax(1) == target).float().mean()


def percent(workers: int, every: int, seed: int, mnist: Any, rows: int, client: Client) -> float:
    """Return the accuracy on the test rows of one fit, in percent."""
    x, x_test = ((images[:rows, None] / 255).astype(np.float32) for images in (mnist.train_images, mnist.test_images))
    y, y_test = (labels[:rows].astype(np.int64) for labels in (mnist.train_labels, mnist.test_labels))
    torch.manual_seed(seed)
    result = dt.fit(
        cnn(),
        x,
        y,
        validation_data=(x_test, y_test),
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        metrics={"accuracy": accuracy},
        batch_size=BATCH_SIZE,
        epochs=EPOCHS,
        seed=seed,
        workers=workers,
        sync_every=None if every == 1 else every,
        client=client,
        verbose=0,
    )
    return 100 * result.history["val_accuracy"][-1]


def main() -> None:
    """Take the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="one seed of few rows, and no file: does it all work?")
    args = parser.parse_args()
    mnist, seeds = load_mnist(), 1 if args.small else args.seeds
    rows = 2_000 if args.small else 20_000
    figures: dict[str, Any] = {}
    with (
        LocalCluster(n_workers=max(WORKERS), threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for workers in WORKERS:
            for every in EVERY:
                percents = [percent(workers, every, seed, mnist, rows, client) for seed in range(seeds)]
                figures[f"{workers} workers, every {every}"] = summary(percents)
                print(
                    f"{workers} workers, a sum every {every:3d} steps: {statistics.mean(percents):.2f} % "
                    f"({min(percents):.2f} to {max(percents):.2f})",
                    flush=True,
                )
    if not args.small:
        save("sync_every", {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "accuracy_percent": figures})


if __name__ == "__main__":
    main()
