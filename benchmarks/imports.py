"""How long ``import dask_train`` takes above the Dask that a program imports anyway; see README.md."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from recording import save, summary

# What programs import before it.
BEFORE = ("dask", "dask.array", "distributed")


def import_ms(before: str) -> tuple[float, float]:
    """Milliseconds that ``import dask_train`` takes in a new interpreter after another import, and those of the other.

    They are the interpreter's own count (``-X importtime``), of a module with all that it imports for the first time.
    """
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {before}; import dask_train"],
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    lines = re.findall(r"^import time: +\d+ \| +(\d+) \| (\S+)$", told, re.MULTILINE)  # the outermost, not indented
    taken = {name: int(microseconds) / 1000 for microseconds, name in lines}
    package = before.partition(".")[0]
    return taken["dask_train"], sum(ms for name, ms in taken.items() if name.partition(".")[0] == package)


def main() -> None:
    """Measure each, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    taken: dict[str, list[tuple[float, float]]] = {before: [] for before in BEFORE}
    for _ in range(repeats):
        for before in BEFORE:
            taken[before].append(import_ms(before))
    figures = {}
    for before, both in taken.items():
        ours, theirs = ([pair[at] for pair in both] for at in (0, 1))
        print(f"after {before}: dask_train {min(ours):.1f} ms at best, {before} itself {min(theirs):.0f} ms")
        figures[before] = {"dask_train_ms": summary(ours), "itself_ms": summary(theirs)}
    save("imports", {"after": figures})


if __name__ == "__main__":
    main()
