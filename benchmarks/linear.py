"""Seconds of a logistic regression by each solver to the same objective, peak memory, and messages to the scheduler.

    make .venv-glm                                     # once: dask-glm and glum, in an environment of their own
    .venv/bin/python benchmarks/linear.py [--rounds 5] [--only admm] [--no-memory] [--messages] [--small]

A million rows of 50 float64 in 20 partitions, two workers with a thread each: from the call of ``fit`` to coefficients
whose mean loss is at most 1e-6 of itself above the minimum, which scikit-learn's ``newton-cholesky`` finds beforehand.
Of each way that fit is timed which is the first to come so near, of several with smaller and smaller tolerances; later
rounds begin with the tolerance that was needed in the one before. dask-glm and ours have the rows as Dask's ``persist``
gives them, of which ours makes a copy in shared memory; "of dt.persist" they lie there already. All ways run in turn in
each round (``linear_cases.py``) on as many cores; ratios are round by round. A fit that takes longer than 300 s counts
as 300 s.

Afterwards 5 million rows of 100 (4 GB) are computed and fitted: the peak memory of all processes less that of a few
rows, over the size of the data (``peak_memory.py``). And while ``gradient_descent`` iterates, on features that hang
together, the messages that the scheduler gets in a second more than of an idle cluster; they have a file of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from linear_cases import NUM_WORKERS, TOLERANCES
from peak_memory import peak_memory
from recording import same_cores, save, summary

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-glm" / "bin" / "python"
DEFAULT, IN_SHARED = ("ours", "newton-cholesky"), ("ours of dt.persist", "newton-cholesky")
REFERENCE = ("scikit-learn", "newton-cholesky")
WAYS = [
    *(("ours", name) for name in ("newton-cholesky", "lbfgs", "gradient_descent")),
    *(("ours", name) for name in ("newton-cd", "proximal_gradient", "admm")),
    IN_SHARED,
    *(("dask-glm", name) for name in ("newton", "lbfgs", "gradient_descent", "proximal_grad", "admm")),
    *(("scikit-learn", name) for name in ("newton-cholesky", "lbfgs")),
    *(("glum", name) for name in ("irls-ls", "lbfgs")),
]
# How many times as fast the first is as the second, at least.
AIMS = [
    (DEFAULT, ("dask-glm", "lbfgs"), 10.0),
    (IN_SHARED, ("dask-glm", "lbfgs"), None),
    (DEFAULT, REFERENCE, 0.9),
    (DEFAULT, ("glum", "irls-ls"), None),
    (("ours", "newton-cholesky"), ("dask-glm", "newton"), 5.0),
    (("ours", "lbfgs"), ("dask-glm", "lbfgs"), 5.0),
    (("ours", "gradient_descent"), ("dask-glm", "gradient_descent"), 5.0),
    (("ours", "proximal_gradient"), ("dask-glm", "proximal_grad"), 5.0),
    (("ours", "admm"), ("dask-glm", "admm"), 5.0),
    (("ours", "lbfgs"), ("scikit-learn", "lbfgs"), None),
]
AIM_MEMORY, AIM_MESSAGES = 1.2, 3.0
# Of a fit; and of a program that does other things as well.
PATIENCE_S, LONG_S = 300.0, 1200.0


def command(way: tuple[str, str], rows: int, features: int, *more: str) -> list[str]:
    """The program of a way; its peers' packages are in an environment of their own."""
    python = str(PEERS) if way[0] in ("dask-glm", "glum") else sys.executable
    return [python, str(HERE / "linear_cases.py"), *way, "--rows", str(rows), "--features", str(features), *more]


def told(line: list[str], timeout_s: float = LONG_S) -> dict[str, Any]:
    """What a program says in its last line."""
    ended = subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(line)} ended with code {ended.returncode}: {ended.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def timed(line: list[str], begin: float) -> dict[str, Any]:
    """The fit that is good enough, of those with ever smaller tolerances; where one takes too long, that it is not."""
    try:
        return told([*line, "--begin", repr(begin)], PATIENCE_S)
    except subprocess.TimeoutExpired as cut:
        said = cut.stdout or ""
        said = said.decode() if isinstance(said, bytes) else said
    tried: list[dict[str, Any]] = [json.loads(each) for each in said.splitlines()]
    if not tried:
        return {"seconds": PATIENCE_S, "tol": begin, "loss": math.nan, "reached": False}
    if tried[-1]["reached"] or tried[-1]["tol"] == TOLERANCES[-1]:
        return tried[-1]
    return timed(line, TOLERANCES[TOLERANCES.index(tried[-1]["tol"]) + 1])  # by itself it has all the time


def times(ways: list[tuple[str, str]], rows: int, features: int, rounds: int) -> dict[str, Any]:
    """Seconds of each way, round by round, and who is how many times as fast as whom."""
    least = told(command(REFERENCE, rows, features))["loss"]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, before in runs.items():
            begin = before[-1]["tol"] if before else TOLERANCES[0]
            found = timed(command(way, rows, features, "--target", repr(least)), begin)
            before.append(found)
            near = "" if found["reached"] else f", not to 1e-6: {found['loss'] / least - 1:.0e}"
            print(f"round {number}: {' '.join(way)}: {found['seconds']:.2f} s, tol={found['tol']:g}{near}", flush=True)
    seconds = {way: [run["seconds"] for run in of_way] for way, of_way in runs.items()}
    figures: dict[str, Any] = {
        " ".join(way): {**summary(values), "reached": all(run["reached"] for run in runs[way])}
        for way, values in seconds.items()
    }
    for ours, theirs, aim in AIMS:
        if ours in seconds and theirs in seconds:
            faster = summary([b / a for a, b in zip(seconds[ours], seconds[theirs], strict=True)])
            name = f"{' '.join(ours)} over {' '.join(theirs)}"
            figures[name] = {**faster, "aim": aim}
            print(f"{name}: {faster['median']:.2f} times as fast" + (f" (aim: {aim})" if aim else ""))
    return figures


def messages(rounds: int) -> None:
    """What the scheduler gets while a solver iterates."""
    runs = [told(command(("ours", "gradient_descent"), 1_000_000, 50, "--messages")) for _ in range(rounds)]
    figures = {name: summary([run[name] for run in runs]) for name in runs[0]}
    print(f"messages a second: {figures['more']['median']:.1f} more than idle (aim: {AIM_MESSAGES:g})")
    save("linear-messages", {"solver": "gradient_descent", "figures": figures}, packages=("scikit-learn",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="solvers, by name")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--messages", action="store_true", help="these alone")
    parser.add_argument("--small", action="store_true", help="a round of few rows, and no file: does it all work?")
    args = parser.parse_args()
    same_cores(NUM_WORKERS)
    if args.messages:
        messages(args.rounds)
        return
    rows, rounds = (50_000, 1) if args.small else (1_000_000, args.rounds)
    many = (100_000, 100) if args.small else (5_000_000, 100)
    ways = [way for way in WAYS if not args.only or way[1] in args.only]
    if not PEERS.exists():
        ways = [way for way in ways if way[0] not in ("dask-glm", "glum")]
        print("without dask-glm and glum: make .venv-glm")
    figures = times(ways, rows, 50, rounds)
    if not args.no_memory:
        few, all_rows = (
            peak_memory(command(DEFAULT, each, many[1], "--lazy"), LONG_S)["peak_bytes"] for each in (2000, many[0])
        )
        share = (all_rows - few) / (8 * many[0] * many[1])
        figures["peak memory over the data"] = share
        print(f"peak memory over {8 * many[0] * many[1] / 1e9:.1f} GB of data: {share:.2f} (aim: {AIM_MEMORY})")
    if ways == WAYS and not args.small and not args.no_memory:
        save("linear", {"rows": rows, "features": 50, "figures": figures}, packages=("scikit-learn",))
    else:
        print("not written: only a run of all in full size is")


if __name__ == "__main__":
    main()
