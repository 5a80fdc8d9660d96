"""Milliseconds of ``session.all_reduce`` between role processes of a host, against torch's gloo in the same processes.

    .venv/bin/python benchmarks/collectives.py [--rounds 5] [--small]

2 workers of ``dt.train(framework="torch")``: 11 MB, the gradients of the network of ``fit.py``, and 64 bytes. What is
compared are whole calls: ours return a new array; gloo sums in place, in a copy made for each call.
Both in turn in each round, 30 sums each after 5 that do not count; the median of them, and of the rounds. Between hosts
the same ring is measured by ``ring.py``, against TensorFlow's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from recording import save, summary

import dask_train as dt
from dask_train.cluster.local import local_client

ARRAYS = {"11 MB": 2_800_000, "64 B": 16}
NUM_WARM, NUM_SUMS = 5, 30


def worker(session: Any) -> dict[str, float]:
    """Milliseconds of a sum by each way and size."""
    import torch
    import torch.distributed as dist

    def gloo(array: np.ndarray) -> Any:
        tensor = torch.from_numpy(array.copy())
        dist.all_reduce(tensor)
        return tensor.numpy()

    found = {}
    for name, size in ARRAYS.items():
        array = np.full(size, session.rank + 1.0, "f4")
        for way, add_up in {"ours": session.all_reduce, "gloo": gloo}.items():
            took = []
            for _ in range(NUM_WARM + NUM_SUMS):
                session.barrier()
                began = time.perf_counter()
                total = add_up(array)
                took.append(time.perf_counter() - began)
                assert total[-1] == 3.0
            found[f"{name}, {way}"] = 1000 * statistics.median(took[NUM_WARM:])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="one round, and no file")
    args = parser.parse_args()
    rounds: list[dict[str, float]] = []
    with local_client(2):
        for _ in range(1 if args.small else args.rounds):
            result = dt.train(worker, roles={"worker": 2}, framework="torch")
            slowest = {name: max(its[name] for its in result.results["worker"]) for name in result.results["worker"][0]}
            rounds.append(slowest)
    figures = {name: summary([one[name] for one in rounds]) for name in rounds[0]}
    for name in ARRAYS:
        ours, gloo = (figures[f"{name}, {way}"]["median"] for way in ("ours", "gloo"))
        print(f"{name}: ours {ours:.3f} ms, gloo {gloo:.3f} ms, {gloo / ours:.1f} times as fast")
    if not args.small:
        save("collectives", figures)


if __name__ == "__main__":
    main()
