"""How fast rows get from where they are computed to the processes that train on them, and what memory that takes.

    make .venv-ray                                     # once: Ray, in an environment of its own
    .venv/bin/python benchmarks/handoff.py [--rounds 5] [--only lazy ray] [--no-memory] [--small] [--ray PYTHON]

1.1 million rows of 784 float32 (3.4 GB) go to 2 processes which touch every byte, 3 times over, 4,096 rows at a time
in each. Every case is a process tree of its own, on a cluster that is up and has done the same with a few rows before
(``handoff_cases.py``, ``handoff_ray.py``); all cases run in turn in each round. Rates are those of both processes
together: of the first epoch from the call (``train``, Ray Train's ``fit``; the peers by hand are ready before it) and
from the first batch, and of the later epochs, when pages are warm. The queue's Dask workers are the same processes that
train.

Afterwards, in runs of their own, because looking costs time: the peak memory of all processes (``peak_memory.py``) less
that of the same run with a few rows, over the size of the data.

Figures are written only by a run of all cases in full size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from handoff_rows import BATCH_ROWS, EPOCHS, NUM_BLOCKS, NUM_PROCESSES, ROW_BYTES
from peak_memory import peak_memory
from recording import save, summary

import dask_train as dt

HERE = Path(__file__).parent
ROWS, SMALL_ROWS = 1_100_000, 44_000
FEW_ROWS = 2 * NUM_BLOCKS
PATIENCE_S = 300.0
AIM_FIRST_BATCH_S, AIM_MEMORY = 0.5, 1.3
# By name: the program, its arguments, and whether its memory is of interest.
CASES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "lazy": ("handoff_cases.py", ("lazy",), True),
    "lazy, shuffled": ("handoff_cases.py", ("lazy", "--shuffle"), True),
    "dt.persist": ("handoff_cases.py", ("persisted",), True),
    "dt.persist, shuffled": ("handoff_cases.py", ("persisted", "--shuffle"), True),
    "X.persist()": ("handoff_cases.py", ("plain",), True),
    "X.persist(), shuffled": ("handoff_cases.py", ("plain", "--shuffle"), False),
    "Ray, lazy": ("handoff_ray.py", ("lazy",), True),
    "Ray, materialized": ("handoff_ray.py", ("materialized",), True),
    "gather": ("handoff_cases.py", ("gather",), False),
    "queue": ("handoff_cases.py", ("queue",), False),
    "from_generator": ("handoff_cases.py", ("generator",), False),
    "from_generator, shuffled": ("handoff_cases.py", ("generator", "--shuffle"), False),
    "put": ("handoff_cases.py", ("put",), False),
}
# What is compared with what: at each rate, the first over the second, round by round.
COMPARED = [
    ("lazy", "Ray, lazy"),
    ("dt.persist", "Ray, materialized"),
    ("dt.persist", "gather"),
    ("dt.persist", "queue"),
    ("dt.persist", "from_generator"),
    ("dt.persist, shuffled", "from_generator, shuffled"),
]
RATES = ("first_epoch_gb_s", "from_first_batch_gb_s", "later_epochs_gb_s")


def command(case: str, num_rows: int, ray: Path) -> list[str]:
    """What runs one case."""
    program, arguments, _ = CASES[case]
    python = str(ray) if program == "handoff_ray.py" else sys.executable
    return [python, str(HERE / program), *arguments, "--rows", str(num_rows)]


def run_once(case: str, num_rows: int, ray: Path) -> dict[str, Any]:
    """The figures of one case in one round."""
    asked = command(case, num_rows, ray)
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(asked)} ended with code {ended.returncode}: {ended.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def memory_of(case: str, num_rows: int, ray: Path) -> dict[str, float]:
    """Peak memory over the size of the data, without what the same processes take anyhow."""
    peaks = {rows: peak_memory(command(case, rows, ray), PATIENCE_S) for rows in (FEW_ROWS, num_rows)}
    data_bytes = num_rows * ROW_BYTES
    return {
        "peak_gb": peaks[num_rows]["peak_bytes"] / 1e9,
        "without_data_gb": peaks[FEW_ROWS]["peak_bytes"] / 1e9,
        "over_data": (peaks[num_rows]["peak_bytes"] - peaks[FEW_ROWS]["peak_bytes"]) / data_bytes,
        "pss_alone_over_data": (peaks[num_rows]["pss_bytes"] - peaks[FEW_ROWS]["pss_bytes"]) / data_bytes,
    }


def available(ray: Path) -> list[str]:
    """The cases that can be run here; says what is left out."""
    left_out = {}
    if not ray.exists():
        left_out["Ray"] = f"no Ray at {ray}: make .venv-ray"
    if not hasattr(dt, "persist"):
        left_out["dt.persist"] = "this dask_train has no persist"
    for case, why in left_out.items():
        print(f"left out: {case}, {why}")
    return [case for case in CASES if not case.startswith(tuple(left_out))]


def summarise(runs: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """By case, and what is compared."""
    figures: dict[str, Any] = {}
    for case, found in runs[0].items():
        names = [name for name, value in found.items() if isinstance(value, int | float)]
        figures[case] = {name: summary([run[case][name] for run in runs]) for name in names}
    ratios = {}
    for ours, peer in COMPARED:
        if ours in runs[0] and peer in runs[0]:
            ratios[f"{ours} / {peer}"] = {
                name: summary([run[ours][name] / run[peer][name] for run in runs]) for name in RATES
            }
    return {"cases": figures, "ratios": ratios}


def show(figures: dict[str, Any]) -> None:
    """The medians."""
    print(f"{'':34}{'from the call':>14}{'first batch':>13}{'later epochs':>14}{'first batch':>13}")
    print(f"{'':34}{'GB/s':>14}{'GB/s':>13}{'GB/s':>14}{'after s':>13}   medians")
    for case, found in figures["cases"].items():
        if RATES[0] in found:
            columns = [found[name]["median"] for name in (*RATES, "first_batch_s")]
            print(f"{case:34}{columns[0]:14.2f}{columns[1]:13.2f}{columns[2]:14.2f}{columns[3]:13.2f}")
    for case, found in figures["ratios"].items():
        columns = [found[name]["median"] for name in RATES]
        print(f"{case:34}{columns[0]:14.2f}{columns[1]:13.2f}{columns[2]:14.2f}   times")
    for case in ("lazy", "lazy, shuffled"):
        if case in figures["cases"]:
            found = figures["cases"][case]
            after = [found[f"after_{which}_partition_s"]["median"] for which in ("first", "last")]
            print(f"{case}: first batch {after[0]:.2f} s after the first partition was computed ", end="")
            print(f"(aim: at most {AIM_FIRST_BATCH_S:g}), {after[1]:+.2f} s after the last")
    if "put" in figures["cases"]:
        found = {name: figure["median"] for name, figure in figures["cases"]["put"].items()}
        print(f"put over a warm memcpy of {found['memcpy_gb_s']:.1f} GB/s: ", end="")
        print(f"cold {found['put_cold_over_memcpy']:.2f}, warm {found['put_warm_over_memcpy']:.2f}")


def show_memory(memory: dict[str, dict[str, float]]) -> None:
    """One line a case."""
    for case, found in memory.items():
        print(f"{case:34}peak {found['peak_gb']:.2f} GB, without data {found['without_data_gb']:.2f} GB: ", end="")
        print(f"{found['over_data']:.2f} times the data (aim: at most {AIM_MEMORY:g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="CASE", help="cases whose names contain one of these, any case")
    parser.add_argument("--no-memory", action="store_true", help="rates only")
    parser.add_argument("--small", action="store_true", help=f"{SMALL_ROWS:,} rows and a round: does it all work?")
    parser.add_argument("--ray", type=Path, default=HERE.parent / ".venv-ray" / "bin" / "python")
    options = parser.parse_args()
    num_rows, rounds = (SMALL_ROWS, 1) if options.small else (ROWS, options.rounds)
    cases = available(options.ray)
    if options.only:
        cases = [case for case in cases if any(part.lower() in case.lower() for part in options.only)]
    runs = []
    version = ""
    for number in range(rounds):
        found: dict[str, dict[str, Any]] = {}
        for case in cases:
            found[case] = run_once(case, num_rows, options.ray)
            version = found[case].get("ray", version)
            told = ", ".join(f"{name} {value:.2f}" for name, value in found[case].items() if name != "ray")
            print(f"round {number + 1}, {case}: {told}", flush=True)
        runs.append(found)
    figures = summarise(runs)
    show(figures)
    memory = {}
    if not options.no_memory:
        memory = {case: memory_of(case, num_rows, options.ray) for case in cases if CASES[case][2]}
        show_memory(memory)
    if options.only or options.small or options.no_memory:
        print("not written: only a run of all cases in full size is")
        return
    size = {"rows": num_rows, "data_gb": num_rows * ROW_BYTES / 1e9, "epochs": EPOCHS, "batch_rows": BATCH_ROWS}
    save("handoff", {**size, "processes": NUM_PROCESSES, "ray": version, **figures, "memory": memory})


if __name__ == "__main__":
    main()
