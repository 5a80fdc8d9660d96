"""Seconds and peak memory of boosted trees on 2 Dask workers, against ``xgboost.dask``, ``lightgbm.dask``, one process.

    .venv/bin/python benchmarks/trees.py [--rounds 5] [--libraries xgboost] [--rows 1100000] [--only seconds] [--small]

1.1 and 5 million rows of 28 float32 features (as of the HIGGS data set: half of them noise), two classes, 100 rounds of
depth 8. ``dt.fit`` has the number of workers that it chooses, one with both cores, and once more two of one thread
each, as the libraries' own Dask estimators have. Each way is a program of its own (``trees_cases.py``), on as many
cores as there are workers, and has the rows in memory once when the clock starts; it runs until the estimator is here.
All ways in turn in each round; ratios are round by round.

Peak memory comes from runs of their own, of 10 rounds, as looking every 50 ms costs time: of all processes of the
program from its start to its end, shared memory counted once (``peak_memory.py``); and the same less that of a few
rows, which is what processes and libraries take without data. Each size leaves two files: ``trees-ROWS.json`` and
``trees-memory-ROWS.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from peak_memory import peak_memory
from recording import same_cores, save, summary
from trees_cases import NUM_FEATURES, NUM_WORKERS, ONE_EACH, PERSISTED

CASES = Path(__file__).parent / "trees_cases.py"
WAYS = {
    "xgboost": ("dt.fit", f"dt.fit {ONE_EACH}", "xgboost.dask", "one process"),
    "lightgbm": ("dt.fit", f"dt.fit {ONE_EACH}", "lightgbm.dask", "one process"),
}
OF_AIMS = "xgboost.dask"
AIMS = {"seconds": 0.95, "peak_bytes": 0.7}  # of dt.fit over that
NUM_ROUNDS, MEMORY_ROUNDS, FEW_ROWS, SMALL_ROWS = 100, 10, 2000, 50_000
PATIENCE_S = 3600.0


def command(library: str, way: str, num_rows: int, num_rounds: int) -> list[str]:
    """The program of a way."""
    return [sys.executable, str(CASES), library, way, str(num_rows), str(num_rounds)]


def times(library: str, num_rows: int, num_rounds: int, rounds: int) -> dict[str, Any]:
    """Seconds of each way, round by round, and how they compare."""
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS[library]}
    for number in range(rounds):
        for way, found in runs.items():
            line = command(library, way, num_rows, num_rounds)
            ended = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            if ended.returncode:
                raise RuntimeError(f"{' '.join(line)} ended with code {ended.returncode}: {ended.stderr[-2000:]}")
            found.append(json.loads(ended.stdout.splitlines()[-1]))
            told = f"{found[-1]['seconds']:.1f} s, accuracy {found[-1]['accuracy']:.4f}"
            print(f"round {number}: {library}, {num_rows:,} rows, {way}: {told}", flush=True)
    figures: dict[str, Any] = {
        way: {name: summary([run[name] for run in found]) for name in found[0]} for way, found in runs.items()
    }
    ours, *others = WAYS[library]
    for way in others:
        ratios = [mine["seconds"] / theirs["seconds"] for mine, theirs in zip(runs[ours], runs[way], strict=True)]
        figures[f"seconds over {way}"] = summary(ratios)
        _show(library, num_rows, "seconds", way, figures[f"seconds over {way}"]["median"])
    return figures


def memory(library: str, num_rows: int, rounds: int) -> dict[str, Any]:
    """Peak memory of each way; of ours also where the data lies in Dask's memory, as it does for the peer."""
    ours, _, *others = WAYS[library]
    figures: dict[str, Any] = {}
    for way in (ours, f"{ours} {PERSISTED}", *others):
        peaks = [
            [
                peak_memory(command(library, way, each, MEMORY_ROUNDS), PATIENCE_S)["peak_bytes"]
                for each in (FEW_ROWS, num_rows)
            ]
            for _ in range(rounds)
        ]
        figures[way] = {
            "peak_bytes": summary([whole for _, whole in peaks]),
            "of_the_rows_bytes": summary([whole - few for few, whole in peaks]),
        }
        told = ", ".join(f"{name} {each['median'] / 1e9:.2f} GB" for name, each in figures[way].items())
        print(f"{library}, {num_rows:,} rows ({num_rows * NUM_FEATURES * 4 / 1e9:.2f} GB), {way}: {told}", flush=True)
    for mine in (ours, f"{ours} {PERSISTED}"):
        for way in others:
            for name in ("peak_bytes", "of_the_rows_bytes"):
                ratio = figures[mine][name]["median"] / figures[way][name]["median"]
                figures[f"{name} of {mine} over {way}"] = ratio
                _show(library, num_rows, name, way, ratio, "" if mine == ours else f" {PERSISTED}")
    return figures


def _show(library: str, num_rows: int, name: str, way: str, ratio: float, of_data: str = "") -> None:
    aim = f" (aim: at most {AIMS[name]})" if way == OF_AIMS and name in AIMS and not of_data else ""
    print(f"{library}, {num_rows:,} rows: {name}{of_data} over {way}: {ratio:.2f}{aim}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--libraries", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1_100_000, 5_000_000])
    parser.add_argument("--only", choices=("seconds", "memory"), help="one of the two")
    parser.add_argument("--memory-rounds", type=int, default=3, help="runs of each way that memory is looked at of")
    parser.add_argument("--small", action="store_true", help="a round of few rows, and no file: does it all work?")
    args = parser.parse_args()
    sizes, num_rounds, rounds, of_memory = args.rows, NUM_ROUNDS, args.rounds, args.memory_rounds
    if args.small:
        sizes, num_rounds, rounds, of_memory = [SMALL_ROWS], MEMORY_ROUNDS, 1, 1
    same_cores(NUM_WORKERS)
    os.environ["PYTHONWARNINGS"] = "ignore"
    measures = {
        "trees": lambda library, num_rows: times(library, num_rows, num_rounds, rounds),
        "trees-memory": lambda library, num_rows: memory(library, num_rows, of_memory),
    }
    if args.only:
        del measures["trees-memory" if args.only == "seconds" else "trees"]
    for num_rows in sizes:
        for name, measure in measures.items():
            figures = {library: measure(library, num_rows) for library in args.libraries}
            if args.small or set(args.libraries) != set(WAYS):
                print("not written: only a run of all libraries in full size is")
                continue
            size = {"workers": NUM_WORKERS, "rows": num_rows, "features": NUM_FEATURES, "trees": NUM_ROUNDS}
            save(f"{name}-{num_rows}", {**size, "figures": figures}, packages=("xgboost-cpu", "lightgbm"))


if __name__ == "__main__":
    main()
