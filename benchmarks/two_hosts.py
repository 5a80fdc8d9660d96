"""What a step of a torch module takes on two hosts, beside DistributedDataParallel on gloo, at several speeds.

    .venv/bin/python benchmarks/two_hosts.py [--rates none 10gbit 1gbit] [--models cnn deep] [--runs 3] [--steps 80]
        [--ways dt.fit DDP bfloat16 sync_every in_place]

Both hosts are network namespaces of this machine with a core each (``tests/cluster/hosts.py``); ``tc`` limits what each
of them sends. ``dt.fit`` and the peer run in turn, between the same namespaces, with 64 rows a host and step. The ways
``bfloat16`` and ``sync_every`` are ``dt.fit`` with ``wire="bfloat16"``, and with ``sync_every=20``, where most steps
send nothing: of these the mean over whole turns is taken in place of the median over steps. The way ``in_place`` is
``dt.fit`` with ``recovery="in_place"``. Compare only what one call prints: the machine's speed drifts. Needs root, and
the machine for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recording import save, summary

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

ROWS, WARM_STEPS, EVERY = 64, 10, 20
RATES = ("none", "10gbit", "1gbit")
PORT = 29511


def model(name: str) -> torch.nn.Module:
    """One of 2.8 million weights: in one large layer, or in ten like ones."""
    torch.manual_seed(0)
    nn = torch.nn
    if name == "cnn":
        hidden = nn.Linear(32 * 26 * 26, 128)
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), hidden, nn.ReLU(), nn.Linear(128, 10))
    middle = [part for _ in range(9) for part in (nn.Linear(512, 512), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), *middle, nn.Linear(512, 10))


class TimedSGD(torch.optim.SGD):
    """Notes when each step was taken, and writes it down at the last one."""

    def __init__(self, parameters: Any, folder: str, steps: int) -> None:
        super().__init__(parameters, lr=0.001)
        self._folder, self._num, self._times = folder, steps, []

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        found = super().step(closure)
        self._times.append(time.perf_counter())
        if len(self._times) == self._num:
            took = np.diff(self._times[WARM_STEPS - 1 :])
            whole = took[: len(took) // EVERY * EVERY]  # each as many steps that send weights
            told = {"mean": float(whole.mean()), "median": float(np.median(took)), "cpu_s": time.process_time()}
            Path(self._folder, f"{os.uname().nodename}-{os.getpid()}.json").write_text(json.dumps(told))
        return found


def fit(cluster: Any, name: str, steps: int, folder: str, **settings: Any) -> None:
    """Train with ``dt.fit``."""
    import dask.array as da

    import dask_train as dt

    random = np.random.default_rng(0)
    x = da.from_array(random.random((2 * ROWS * steps, 1, 28, 28), np.float32), chunks=(2 * ROWS * 4, 1, 28, 28))
    y = da.from_array(random.integers(0, 10, 2 * ROWS * steps), chunks=2 * ROWS * 4)
    dt.fit(
        model(name),
        x,
        y,
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=partial(TimedSGD, folder=folder, steps=steps),
        batch_size=2 * ROWS,
        workers=2,
        client=cluster.client,
        verbose=0,
        **settings,
    )


def ddp(cluster: Any, name: str, steps: int, folder: str) -> None:
    """Train with torch's own."""
    peers = []
    for rank in range(2):
        surroundings = {
            **os.environ,
            **{"MASTER_ADDR": cluster.addresses[0], "MASTER_PORT": str(PORT), "RANK": str(rank), "WORLD_SIZE": "2"},
            **{"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
        }
        inside = ("nsenter", "--target", str(cluster._hosts[rank].pid), "--net", "--uts", "taskset", "-c", str(rank))
        command = (*inside, sys.executable, os.path.abspath(__file__), "--peer", folder, "--models", name)
        peers.append(subprocess.Popen([*command, "--steps", str(steps)], env=surroundings))
    try:
        for peer in peers:
            assert peer.wait(120) == 0
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()


def peer(name: str, steps: int, folder: str) -> None:
    """One process of the peer."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    random = np.random.default_rng(int(os.environ["RANK"]))
    x = torch.from_numpy(random.random((20 * ROWS, 1, 28, 28), np.float32))
    y = torch.from_numpy(random.integers(0, 10, 20 * ROWS))
    module = torch.nn.parallel.DistributedDataParallel(model(name))
    loss, optimizer = torch.nn.CrossEntropyLoss(), TimedSGD(module.parameters(), folder, steps)
    for number in range(steps):
        own = slice(number % 20 * ROWS, (number % 20 + 1) * ROWS)
        optimizer.zero_grad()
        loss(module(x[own]), y[own]).backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


WAYS = {
    "dt.fit": fit,
    "DDP": ddp,
    "bfloat16": partial(fit, wire="bfloat16"),
    "sync_every": partial(fit, sync_every=EVERY),
    "in_place": partial(fit, recovery="in_place"),
}


def pinned(cluster: Any, rate: str) -> None:
    """Give each host a core, and a line of that speed."""
    for host in range(2):
        for pid in cluster.processes(host):
            subprocess.run(["taskset", "-a", "-c", "-p", str(host), str(pid)], check=True, capture_output=True)
        if rate != "none":
            inside = ("nsenter", "--target", str(cluster._hosts[host].pid), "--net", "tc")
            queue = "qdisc add dev eth0 root handle 1: htb default 10"
            for command in (queue, f"class add dev eth0 parent 1: classid 1:10 htb rate {rate}"):
                subprocess.run([*inside, *command.split()], check=True, capture_output=True)


def measured(
    cluster: Any, names: list[str], ways: list[str], runs: int, steps: int
) -> Iterator[tuple[str, str, float]]:
    """Milliseconds a step of the slower host, one run of each after the other."""
    for _ in range(runs):
        for name in names:
            for way in ways:
                with tempfile.TemporaryDirectory() as folder:
                    WAYS[way](cluster, name, steps, folder)
                    told = [json.loads(file.read_text()) for file in Path(folder).iterdir()]
                assert len(told) == 2, told
                figure = "mean" if way == "sync_every" else "median"
                yield name, way, 1e3 * max(each[figure] for each in told)


def main() -> None:
    """Run all, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="*", default=RATES)
    parser.add_argument("--models", nargs="*", default=["cnn", "deep"])
    parser.add_argument("--ways", nargs="*", default=["dt.fit", "DDP"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--save", nargs="?", const="two_hosts", help="write results/NAME.json")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.peer:
        peer(told.models[0], told.steps, told.peer)
        return
    from hosts import hosts

    figures: dict[str, Any] = {}
    for rate in told.rates:
        with hosts(2) as cluster:
            pinned(cluster, rate)
            found: dict[tuple[str, str], list[float]] = {}
            for name, way, took_ms in measured(cluster, told.models, told.ways, told.runs, told.steps):
                found.setdefault((name, way), []).append(took_ms)
        for name in told.models:
            its = {way: summary(found[name, way]) for way in told.ways}
            figures[f"{name}, {rate}"] = {f"{way}, ms a step": each for way, each in its.items()}
            shown = ", ".join(
                f"{way} {each['median']:.1f} ({each['min']:.1f}-{each['max']:.1f})" for way, each in its.items()
            )
            ratios = [f"{way} {its[way]['median'] / its['DDP']['median']:.2f}" for way in its if "DDP" in its]
            print(f"{rate:7s} {name:5s} ms a step: {shown}; ratios {', '.join(ratios)}", flush=True)
    if told.save:
        save(told.save, {"steps": told.steps, "rows a host": ROWS, **figures})


if __name__ == "__main__":
    main()
