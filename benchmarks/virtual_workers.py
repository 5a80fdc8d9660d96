"""Milliseconds a step of torch modules with ``virtual_workers=``, against the same ``dt.fit`` without it.

    .venv/bin/python benchmarks/virtual_workers.py [--rounds 5] [--small]

Two workers with one core each, and batches of 128 rows in 2, 4 and 8 shares: an MLP 784-256-256-10 and a CNN with two
convolutions, a BatchNorm and Dropout, 0.3 and 0.6 million weights. In a round each takes its turn. Of the epochs after
the first, the median; of ratios to the fit without ``virtual_workers=`` in the same round, the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt

STEPS, EPOCHS, BATCH_SIZE, WORKERS = 30, 4, 128, 2
SHARES = (None, 2, 4, 8)


def mlp() -> torch.nn.Module:
    """An MLP whose step takes about as long as what is around it."""
    sizes = (784, 256, 256, 10)
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def cnn() -> torch.nn.Module:
    """A CNN, whose step takes longer than what is around it."""
    first = [torch.nn.Conv2d(1, 16, 3, stride=2), torch.nn.BatchNorm2d(16), torch.nn.ReLU()]
    second = [torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Flatten()]
    last = [torch.nn.Linear(32 * 36, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    return torch.nn.Sequential(*first, *second, *last)


MODELS = {"MLP": mlp, "CNN": cnn}


def step_ms(name: str, shares: int | None, client: Client) -> float:
    """Milliseconds a step of the median epoch, without the first one."""
    random = np.random.default_rng(0)
    x = random.random((BATCH_SIZE * STEPS, 1, 28, 28), np.float32)
    torch.manual_seed(1)
    result = dt.fit(
        MODELS[name](),
        x,
        random.integers(0, 10, len(x)),
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(torch.optim.Adam, lr=1e-3),
        batch_size=BATCH_SIZE,
        epochs=EPOCHS,
        workers=WORKERS,
        virtual_workers=shares,
        client=client,
        verbose=0,
    )
    ends = [score["time"] for score in result.scores if "step" not in score]
    return 1e3 * statistics.median(np.diff(ends).tolist()) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a round, and no file: does it all work?")
    args = parser.parse_args()
    cases = {f"{name}, {_told(shares)}": (name, shares) for name in MODELS for shares in SHARES}
    runs: list[dict[str, float]] = []
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        for number in range(1 if args.small else args.rounds):
            runs.append({case: step_ms(*its, client) for case, its in cases.items()})
            told = "; ".join(f"{case} {ms:.2f} ms" for case, ms in runs[-1].items())
            print(f"round {number + 1}: {told}", flush=True)
    figures: dict[str, Any] = {case: summary([run[case] for run in runs]) for case in cases}
    for case, (name, shares) in cases.items():
        if shares is not None:
            over = summary([run[case] / run[f"{name}, {_told(None)}"] for run in runs])
            figures[f"{case} over {_told(None)}"] = over
            print(f"{case} over {_told(None)}: {over['median']:.2f}")
    if not args.small:
        save("virtual_workers", figures)


def _told(shares: int | None) -> str:
    return "none" if shares is None else f"{shares} virtual workers"


if __name__ == "__main__":
    main()
