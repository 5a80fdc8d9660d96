"""What all benchmarks share: the machine in words, medians, and the file that a run leaves in ``results/``."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:
    """The machine and the versions that the figures belong to; of more packages than all benchmarks have."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    packages = ("dask", "distributed", "tensorflow-cpu", "keras", "torch", "numpy", *packages)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def summary(values: list[float]) -> dict[str, Any]:
    """Median, extremes and all values of several runs."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": values}


def same_cores(count: int) -> None:
    """Let this process, and all that it starts from now on, use so many cores: workers, and peers in one process."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def save(name: str, figures: dict[str, Any], packages: Sequence[str] = ()) -> None:
    """Write ``results/NAME.json``, and print the machine, so that no figure is read without it."""
    RESULTS.mkdir(exist_ok=True)
    record = {"machine": machine(packages), **figures}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    print("machine:", ", ".join(f"{key} {value}" for key, value in record["machine"].items()))
    print(f"written: benchmarks/results/{name}.json")
