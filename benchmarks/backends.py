"""Milliseconds a step of ``dt.fit`` on each of Keras' backends, against what trains the same network on the same cores.

    .venv/bin/python benchmarks/backends.py [--rounds 5] [--small]

The network of ``fit.py``, 2.8 million weights. On each backend (``backends_fit.py``): ``dt.fit`` on 2 workers with a
thread each, 64 rows a step each; on 1 worker with 2 threads and 128 rows; and Keras' own ``fit`` in one process, as
that worker. Beside torch DistributedDataParallel on gloo, and JAX with ``jax.distributed`` and its gloo collectives,
by hand, 2 processes with a thread each (``fit_peers.py``). All in turn in each round; medians of the rounds.
``agreeing`` is the part of a step that a worker spends on sums and on waiting for the other in them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fit_peers import STEPS
from local_network import unused_ports
from recording import save, summary

BACKENDS = ("tensorflow", "torch", "jax")
PEERS = {"torch": "torch DDP", "jax": "jax.distributed"}
NUM_WORKERS = 2
HERE = Path(__file__).parent
AIMS = {
    "torch: 2 workers over torch DDP": "at most 0.7",
    "plain over 1 worker": "at least 0.97",
    "agreeing": "at most 0.15",
}


def keras_on(backend: str, workers: int, steps: int) -> dict[str, float]:
    """Figures of one process of ``backends_fit.py``."""
    told = subprocess.run(
        [sys.executable, str(HERE / "backends_fit.py"), str(workers), str(steps)],
        env={**os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=600,
    )
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def peer(name: str) -> float:
    """Milliseconds a step of two processes: of the slower one."""
    command = [sys.executable, str(HERE / "fit_peers.py"), name]
    ports = ",".join(map(str, unused_ports(NUM_WORKERS)))
    processes = [
        subprocess.Popen([*command, str(rank), ports], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for rank in range(NUM_WORKERS)
    ]
    return 1e3 * max(float(process.communicate(timeout=600)[0].split()[-1]) for process in processes)


def one_round(steps: int) -> dict[str, float]:
    """All figures once, in milliseconds and shares."""
    found: dict[str, float] = {}
    for backend in BACKENDS:
        told = {workers: keras_on(backend, workers, steps) for workers in (2, 1, 0)}
        found[f"{backend}: 2 workers"], found[f"{backend}: 1 worker"] = told[2]["step_ms"], told[1]["step_ms"]
        found[f"{backend}: plain"] = told[0]["step_ms"]
        found[f"{backend}: plain over 1 worker"] = told[0]["step_ms"] / told[1]["step_ms"]
        found |= {f"{backend}: {name}": told[2][name] for name in ("agreeing", "waiting")}
        if backend in PEERS:
            found[PEERS[backend]] = peer(PEERS[backend])
            found[f"{backend}: 2 workers over {PEERS[backend]}"] = told[2]["step_ms"] / found[PEERS[backend]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a round, and no file: does it all work?")
    args = parser.parse_args()
    runs = []
    for number in range(1 if args.small else args.rounds):
        runs.append(one_round(100 if args.small else STEPS))
        print(
            f"round {number + 1}: " + ", ".join(f"{name} {value:.2f}" for name, value in runs[-1].items()), flush=True
        )
    figures: dict[str, Any] = {name: summary([run[name] for run in runs]) for name in runs[0]}
    for name, values in figures.items():
        aim = next((f" (aim: {aim})" for of, aim in AIMS.items() if name.endswith(of)), "")
        print(f"{name}: {values['median']:.2f}{aim}")
    if not args.small:
        save("backends", {"jax": version("jax"), "steps": STEPS, "figures": figures})


if __name__ == "__main__":
    main()
