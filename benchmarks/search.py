"""What a trial of ``dt.search`` costs over the bare training of the same model, and how soon the first one begins.

    .venv/bin/python benchmarks/search.py [--rounds 5] [--small]

A small convolutional network on MNIST, validated after each epoch, some 10 s a trial, 2 slots of one thread each. The
bare training is two plain processes that have imported Keras, with the same threads, and train the same models in the
same order at the same time, ``model.fit`` on NumPy arrays. Compared is the time from the end of one training to that of
the next in the same process: asking Optuna, building, sending, training, and what is kept of it; ``between`` is the
part of it from an end to the next ``on_train_begin``. CPU seconds are those of the process that trains alone.
``first trial`` is from the call of ``search`` to the first step of a trial, with the data put into shared memory and
Keras imported; for the bare processes it is from their start.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import optuna
from distributed import Client, LocalCluster
from recording import save, summary
from search_bare import BATCH_ROWS, Notes, network, rows

import dask_train as dt

NUM_SLOTS = 2
AIM = 1.10

WALL, CPU = 2, 3  # places in a noting: trial, what, when, CPU time
Notings = dict[int, list[list[Any]]]


def build(trial: optuna.Trial, path: str) -> Any:
    model = network(units=trial.suggest_int("units", 60, 68), rate=trial.suggest_float("rate", 1e-4, 1e-2, log=True))
    return model, {"callbacks": [Notes(path, trial.number)]}


def ours(client: Client, path: str, num_rows: int, epochs: int, num_trials: int) -> tuple[float, dict[int, Any]]:
    """When the search was called, and the parameters of its trials by number."""
    (x, y), validation = rows(num_rows)
    called = time.time()
    found = dt.search(
        partial(build, path=path),
        x,
        y,
        validation_data=validation,
        trials=num_trials,
        epochs=epochs,
        batch_size=BATCH_ROWS,
        concurrency=NUM_SLOTS,
        sampler=optuna.samplers.RandomSampler(seed=0),
        client=client,
    )
    assert all(trial.state.name == "COMPLETE" for trial in found.trials)
    return called, {trial.number: trial.params for trial in found.trials}


def bare(path: str, num_rows: int, epochs: int, by_process: list[list[Any]]) -> float:
    """The same trials in plain processes; when these were started."""
    script = str(Path(__file__).with_name("search_bare.py"))
    started = time.time()
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(num_rows), str(epochs), json.dumps(trials), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"},
        )
        for trials in by_process
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all at the same time
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=600)
        assert process.returncode == 0
    return started


def noted(path: str) -> Notings:
    """What was noted, by process."""
    found: Notings = defaultdict(list)
    for line in Path(path).read_text().splitlines():
        pid, *rest = json.loads(line)
        found[pid].append(rest)
    return found


def periods(notings: Notings, clock: int = WALL) -> list[float]:
    """Seconds, or those of CPU, from the end of a training to the end of the next in the same process."""
    ends = [[noting[clock] for noting in each if noting[1] == "ended"] for each in notings.values()]
    return [after - before for each in ends for before, after in itertools.pairwise(each)]


def between(notings: Notings) -> float:
    """Mean seconds from the end of a training to the beginning of the next in the same process."""
    gaps = []
    for each in notings.values():
        for (_, before, end, _), (_, after, start, _) in itertools.pairwise(each):
            if (before, after) == ("ended", "began"):
                gaps.append(start - end)
    return statistics.mean(gaps)


def first(notings: Notings) -> float:
    return min(when for each in notings.values() for _, what, when, _ in each if what == "began")


def one_round(client: Client, num_rows: int, epochs: int, num_trials: int) -> dict[str, float]:
    """Both, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        ours_path, bare_path = f"{folder}/ours", f"{folder}/bare"
        called, params = ours(client, ours_path, num_rows, epochs, num_trials)
        of_ours = noted(ours_path)
        orders = [[number for number, what, *_ in each if what == "began"] for each in of_ours.values()]
        started = bare(
            bare_path, num_rows, epochs, [[[number, params[number]] for number in order] for order in orders]
        )
        of_bare = noted(bare_path)
    ours_s, bare_s = periods(of_ours), periods(of_bare)
    return {
        "ours s a trial": statistics.mean(ours_s),
        "bare s a trial": statistics.mean(bare_s),
        "ours over bare": statistics.mean(ours_s) / statistics.mean(bare_s),
        "ours CPU s a trial": statistics.mean(periods(of_ours, CPU)),
        "bare CPU s a trial": statistics.mean(periods(of_bare, CPU)),
        "ours s between": between(of_ours),
        "bare s between": between(of_bare),
        "ours first trial s": first(of_ours) - called,
        "bare first trial s": first(of_bare) - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=3, help="of 18,000 rows each")
    parser.add_argument("--small", action="store_true", help="a round of short trials, and no file: does it all work?")
    args = parser.parse_args()
    num_rows, epochs, num_trials = (3_000, 1, 4) if args.small else (18_000, args.epochs, args.trials)
    runs: list[dict[str, float]] = []
    with LocalCluster(n_workers=NUM_SLOTS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        for number in range(1 if args.small else args.rounds):
            with Client(cluster) as client:
                runs.append(one_round(client, num_rows, epochs, num_trials))
            told = ", ".join(f"{name} {value:.2f}" for name, value in runs[-1].items())
            print(f"round {number + 1}: {told}", flush=True)
    figures = {name: summary([run[name] for run in runs]) for name in runs[0]}
    print(f"ours over bare: {figures['ours over bare']['median']:.3f} (aim: {AIM})")
    if not args.small:
        save(
            "search", {"slots": NUM_SLOTS, "trials": num_trials, "epochs": epochs, "rows": num_rows, "figures": figures}
        )


if __name__ == "__main__":
    main()
