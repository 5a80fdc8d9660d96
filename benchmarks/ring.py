"""Milliseconds to sum gradients between hosts: the ring of ``dt.fit``, against TensorFlow's collectives.

    .venv/bin/python benchmarks/ring.py [--rounds 5] [--small]

2 and 3 processes over this machine's loopback, as the first one sees it: 11 MB, the gradients of the network of
``fit.py``, and 64 bytes, as what workers tell each other in each step. ``CollectiveReduceV2`` is what
``MultiWorkerMirroredStrategy`` sums with, as a ring; it has no TLS. All in turn in each round, 30 sums each after 5
that do not count; the median of them, and of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from local_network import certificate, unused_ports
from recording import save, summary

WAYS = ("ring", "ring, TLS", "TensorFlow")
ARRAYS = {"11 MB": (2_800_000, "f4"), "64 B": (8, "f8")}
NUM_WARM, NUM_SUMS = 5, 30


def tensorflow_sum(addresses: list[str], place: int) -> Callable[[np.ndarray], None]:
    """Its collective, in place as ours."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": place}})
    import tensorflow as tf

    tf.distribute.MultiWorkerMirroredStrategy()  # brings the collective runtime up
    device = f"/job:worker/task:{place}/device:CPU:0"
    with tf.device(device):
        token = tf.Variable(0.0).handle

    def add_up(array: np.ndarray) -> None:
        with tf.device(device):
            total = tf.raw_ops.CollectiveReduceV2(
                input=array,
                group_size=len(addresses),
                group_key=7_001,
                instance_key=70_000 + array.size,
                ordering_token=[token],
                merge_op="Add",
                final_op="Id",
                communication_hint="ring",
            )
        array[...] = total.numpy()

    return add_up


def member(way: str, addresses: list[str], place: int, files: dict[str, str]) -> dict[str, float]:
    """One process: median milliseconds of a sum, by array."""
    if way == "TensorFlow":
        add_up = tensorflow_sum(addresses, place)
    else:
        from dask_train.collectives.ring import Ring
        from dask_train.transport.connections import Credentials

        ring = Ring(addresses, place, Credentials(key=b"run", tls=files if "TLS" in way else None), 60.0)

        def add_up(array: np.ndarray) -> None:
            ring([array])

    found = {}
    for name, (size, dtype) in ARRAYS.items():
        array, times = np.empty(size, dtype), []
        for _ in range(NUM_WARM + NUM_SUMS):
            array[:] = 1
            start = time.perf_counter()
            add_up(array)
            times.append(1e3 * (time.perf_counter() - start))
        assert (array == len(addresses)).all()
        found[name] = statistics.median(times[NUM_WARM:])
    return found


def one(way: str, num_hosts: int, files: dict[str, str]) -> dict[str, float]:
    """What the first of so many processes has seen."""
    addresses = [f"127.0.0.1:{port}" for port in unused_ports(num_hosts)]
    command = [sys.executable, __file__, "--member", way, json.dumps(addresses), json.dumps(files)]
    processes = [
        subprocess.Popen([*command, str(place)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for place in range(num_hosts)
    ]
    told, *_ = [process.communicate(timeout=120)[0] for process in processes]
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def one_round(files: dict[str, str]) -> dict[str, float]:
    return {
        f"{num_hosts} hosts, {name}, {way}": value
        for num_hosts in (2, 3)
        for way in WAYS
        for name, value in one(way, num_hosts, files).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a round, and no file: does it all work?")
    parser.add_argument("--member", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        way, addresses, files, place = args.member
        print(json.dumps(member(way, json.loads(addresses), int(place), json.loads(files))))
        sys.stdout.flush()
        os._exit(0)  # TensorFlow's servers wait for each other otherwise
    runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        files = certificate(folder)
        for number in range(1 if args.small else args.rounds):
            runs.append(one_round(files))
            print(f"round {number + 1}: {', '.join(f'{name} {ms:.2f}' for name, ms in runs[-1].items())}", flush=True)
    figures: dict[str, Any] = {name: summary([run[name] for run in runs]) for name in runs[0]}
    for name in [name for name in runs[0] if name.endswith("TensorFlow")]:
        for way in WAYS[:2]:
            ours = name.replace("TensorFlow", way)
            figures[f"{name} over {way}"] = summary([run[name] / run[ours] for run in runs])
            print(f"{name} over {way}: {figures[f'{name} over {way}']['median']:.1f}")
    if not args.small:
        save("ring", {"sums": NUM_SUMS, "figures": figures})


if __name__ == "__main__":
    main()
