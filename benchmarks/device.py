"""One part of ``device.sh``: its checks, each written to ``OUT/PART.jsonl`` when it is done; or the summary of all.

    python benchmarks/device.py PART [--rehearse] [--break-on-purpose] OUT

PART is torch, keras, figures, more, or summary, which needs no framework.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from importlib import import_module
from pathlib import Path
from typing import Any

CHECK_S = 60  # how long one check may take
REHEARSED_S = 240  # with few cores, which others use, too


def main() -> int:
    """Run one part, or write the summary; 1 where a check has failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["torch", "keras", "figures", "more", "summary"])
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--break-on-purpose", action="store_true")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.part == "summary":
        return _summarise(given.out)
    name = f"keras-{os.environ['KERAS_BACKEND']}" if given.part == "keras" else given.part
    return _run_part(name, given)


def _run_part(name: str, given: argparse.Namespace) -> int:
    from distributed import Client, LocalCluster

    signal.signal(signal.SIGALRM, _too_long)
    ok = True
    with (given.out / f"{name}.jsonl").open("w") as file:
        with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as hosts, Client(hosts) as client:
            made = import_module(f"device_{given.part}").Checks
            part = made(client, rehearses=given.rehearse, broken=given.break_on_purpose)
            for check in (each for each in vars(made) if not each.startswith("_")):
                row = {"part": name, **_run(check, part, REHEARSED_S if given.rehearse else CHECK_S)}
                ok = ok and row["ok"]
                print(json.dumps(row), file=file, flush=True)
                print(row, flush=True)
        print(json.dumps({"part": name, "is_whole": True}), file=file)
    return int(not ok)


def _run(check: str, part: Any, limit_s: int) -> dict[str, Any]:
    began = time.monotonic()
    signal.alarm(limit_s)
    try:
        ok, told = True, getattr(part, check)()
    except Exception as error:
        ok, told = False, f"{type(error).__name__}: {error}"[:2000]
    finally:
        signal.alarm(0)
    return {"check": check, "ok": ok, "told": told, "seconds": round(time.monotonic() - began, 1)}


def _too_long(*_: Any) -> None:
    raise TimeoutError("it took too long")


def _summarise(out: Path) -> int:
    """Write ``summary.json`` and ``summary.md`` of what the parts have left, whether they came to their ends or not."""
    parts = sorted(out.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    lines = {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in parts}
    rows = [line for its in lines.values() for line in its if "check" in line]
    cut = [name for name, its in lines.items() if not its or "is_whole" not in its[-1]]
    (out / "summary.json").write_text(json.dumps({"checks": rows, "cut": cut}, indent=1))
    table = [
        f"| {row['part']} | {row['check']} | {'ok' if row['ok'] else 'FAILED'} | {_cell(row['told'])} |" for row in rows
    ]
    ends = [f"| {name} | | CUT | it did not come to its end: see {name}.log |" for name in cut]
    text = "\n".join(["| part | check | | |", "|---|---|---|---|", *table, *ends, ""])
    (out / "summary.md").write_text(text)
    print(text)
    return int(bool(cut) or not rows or not all(row["ok"] for row in rows))


def _cell(told: Any) -> str:
    told = ", ".join(f"{name} {value}" for name, value in told.items()) if isinstance(told, dict) else str(told)
    return " ".join(told.replace("|", "/").split())


if __name__ == "__main__":
    raise SystemExit(main())
