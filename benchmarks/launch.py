"""How long it takes from ``train()`` to the first line of user code in all roles, on a cluster that is up.

    make .venv-ray                                    # once: Ray Train, in an environment of its own
    .venv/bin/python benchmarks/launch.py [--repeats 5] [--ray PYTHON]

Without a framework, with PyTorch and with TensorFlow, 2 and 4 roles. The peer is as many interpreters that do nothing
but import the framework, started at the same time: until the slowest has done it, nobody can be faster. Where Ray
Train's environment is there, its torch loop that does nothing on 2 workers runs in turn with ours, each on a cluster
of its own that is up and has done such a run before, while the other one's is down.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt

HERE = Path(__file__).parent
# framework, what its peer does
IMPORTS = {"none": "pass", "torch": "import torch", "tensorflow": "import tensorflow"}
NUM_ROLES = (2, 4)
RAY_WORKERS = 2
AIM_S, AIM_RATIO = 1.0, 0.4
RAY_PATIENCE_S = 300.0


def first_line(session: dt.Session) -> float:  # noqa: ARG001 - what a role is given
    """A role: it only says when it began."""
    return time.time()


def roles_of(framework: str, num_roles: int) -> dict[str, int]:
    """``num_roles`` roles, as one has them with the framework."""
    return {"ps": 1, "worker": num_roles - 1} if framework == "tensorflow" else {"worker": num_roles}


def launch(framework: str, num_roles: int) -> dict[str, float]:
    """Seconds from the call to the first line in all roles, and until ``train`` has returned."""
    roles = roles_of(framework, num_roles)
    begun = time.time()
    result = dt.train(
        dict.fromkeys(roles, first_line), roles=roles, framework=None if framework == "none" else framework
    )
    returned = time.time()
    stamps = [stamp for ranks in result.results.values() for stamp in ranks]
    assert len(stamps) == num_roles
    return {"first_line_s": max(stamps) - begun, "returned_s": returned - begun}


def slowest_import_s(framework: str, num_roles: int) -> float:
    """Seconds until the slowest of ``num_roles`` bare interpreters has imported the framework."""
    code = f"{IMPORTS[framework]}; import time; print(time.time())"
    begun = time.time()
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(num_roles)
    ]
    return max(float(process.communicate(timeout=120)[0]) for process in processes) - begun


def ours() -> dict[str, dict[str, float]]:
    """Every case once, each right after its peer, on a cluster that is up and has done a run of each before."""
    found = {}
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
    ):
        for framework in IMPORTS:
            launch(framework, max(NUM_ROLES))
        for framework in IMPORTS:
            for num_roles in NUM_ROLES:
                import_s = slowest_import_s(framework, num_roles)
                found[f"{framework}, {num_roles} roles"] = {"import_s": import_s, **launch(framework, num_roles)}
    return found


def with_ray(python: Path) -> dict[str, Any]:
    """What ``ray_first_line.py`` prints."""
    command = [str(python), str(HERE / "ray_first_line.py"), str(RAY_WORKERS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RAY_PATIENCE_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {ended.returncode}: {ended.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def show(figures: dict[str, Any]) -> None:
    """The medians of our cases."""
    print(f"{'':24}{'first line':>12}{'import':>10}{'over':>8}{'returned':>10}   medians, seconds")
    for case, found in figures.items():
        columns = [found[name]["median"] for name in ("first_line_s", "import_s", "over_s", "returned_s")]
        print(f"{case:24}{columns[0]:12.2f}{columns[1]:10.2f}{columns[2]:+8.2f}{columns[3]:10.2f}")


def summarise(runs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """By case; ``over_s`` is the first line minus the import of the same repeat."""
    figures = {}
    for case in runs[0]:
        each = [run[case] for run in runs]
        figures[case] = {name: summary([one[name] for one in each]) for name in each[0]}
        figures[case]["over_s"] = summary([one["first_line_s"] - one["import_s"] for one in each])
    return figures


def summarise_ray(runs: list[dict[str, dict[str, float]]], rays: list[dict[str, Any]]) -> dict[str, Any]:
    """Ray's seconds, and ours over Ray's, repeat by repeat; Ray's second run, as ours has had one before, too."""
    mine = [run[f"torch, {RAY_WORKERS} roles"] for run in runs]
    figures: dict[str, Any] = {"version": rays[0]["ray"], "workers": RAY_WORKERS}
    for name in ("cold", "warm"):
        figures[name] = {key: summary([ray[name][key] for ray in rays]) for key in rays[0][name]}
    figures["ours_over_ray"] = summary(
        [a["first_line_s"] / b["warm"]["first_line_s"] for a, b in zip(mine, rays, strict=True)]
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ray", type=Path, default=HERE.parent / ".venv-ray" / "bin" / "python")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.getLogger("distributed").setLevel(logging.ERROR)
    runs, rays = [], []
    for repeat in range(options.repeats):
        runs.append(ours())
        line = ", ".join(f"{case} {found['first_line_s']:.2f} s" for case, found in runs[-1].items())
        if options.ray.exists():
            rays.append(with_ray(options.ray))
            line += f", Ray Train {rays[-1]['warm']['first_line_s']:.2f} s"
        print(f"repeat {repeat + 1}: {line}", flush=True)
    figures: dict[str, Any] = {"ours": summarise(runs)}
    show(figures["ours"])
    worst = max(found["over_s"]["median"] for found in figures["ours"].values())
    print(f"first line - slowest import, the worst case: {worst:+.2f} s (aim: at most {AIM_S:g})")
    if rays:
        figures["ray"] = summarise_ray(runs, rays)
        ray_s = figures["ray"]["warm"]["first_line_s"]["median"]
        ratio = figures["ray"]["ours_over_ray"]["median"]
        print(f"Ray Train {figures['ray']['version']}, {RAY_WORKERS} workers: first line after {ray_s:.2f} s, ", end="")
        print(f"ours / Ray {ratio:.2f} (aim: at most {AIM_RATIO:g})")
    else:
        print(f"No Ray Train at {options.ray}: make .venv-ray")
    save("launch", figures)


if __name__ == "__main__":
    main()
