"""How long the main job takes, how much memory all its processes take, and how good it is.

    .venv/bin/python benchmarks/main_job.py [--runs 3]

Runs ``dask train demo`` as a person does. Memory is the proportional set size (PSS, shared pages counted once) of the
program and all its child processes, read twice a second.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from recording import save, summary

DASK = Path(sys.executable).with_name("dask")


def pss_bytes(program: psutil.Process) -> int:
    """PSS of a process and all its children; 0 when it has just ended."""
    total = 0
    try:
        for process in [program, *program.children(recursive=True)]:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += 1024 * int(re.search(r"^Pss: +(\d+) kB", rollup, flags=re.MULTILINE)[1])
    except (psutil.NoSuchProcess, OSError):
        return 0
    return total


def run_once(folder: str) -> dict[str, float]:
    """One run of the main job: its seconds, its peak memory, and what its summary says."""
    begun = time.perf_counter()
    command = [DASK, "train", "demo"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        watched, peak = psutil.Process(program.pid), 0
        while program.poll() is None:
            peak = max(peak, pss_bytes(watched))
            time.sleep(0.5)
        seconds = time.perf_counter() - begun
        output = program.stdout.read()
    figures = {name: float(value) for name, value in re.findall(r"^seconds: (\w+) +([\d.]+)$", output, re.MULTILINE)}
    rows = float(re.search(r"^rows trained +([\d,]+)$", output, re.MULTILINE)[1].replace(",", ""))
    accuracy = float(re.search(r"^test accuracy: ([\d.]+)%$", output, re.MULTILINE)[1])
    return {"seconds": seconds, "peak_gb": peak / 1e9, "test_accuracy": accuracy, "rows_trained": rows, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = []
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(run_once(folder))
        print(f"run {number + 1}:", ", ".join(f"{name} {value:,.1f}" for name, value in runs[-1].items()), flush=True)
    save("main_job", {name: summary([run[name] for run in runs]) for name in runs[0]})


if __name__ == "__main__":
    main()
