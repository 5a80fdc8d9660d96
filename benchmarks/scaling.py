"""Loss against time for 1, 2 and 4 workers, asynchronous and synchronous: what the seed of this project wished for.

    .venv/bin/python benchmarks/scaling.py [--runs 2] [--seconds 12]

The network of the main job trains on 4 copies of MNIST for a fixed time; once a second the scorer measures the mean
cross-entropy on rows that are never trained on. The peer of each figure is one asynchronous worker in the same run.
On a machine with fewer cores than workers more workers share the same cores.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from recording import RESULTS, save

import dask_train as dt
from dask_train.demo.main_job import own_cluster
from dask_train.demo.pipeline import DemoSettings, prepare, train_until_good_enough

WORKERS = (1, 2, 4)
LOSSES = (0.3, 0.2, 0.15, 0.1)


def curve(workers: int, sync: bool, seconds: float) -> dict[str, Any]:
    """One training: the scores since the first of them, and the rows trained a second."""
    settings = DemoSettings(copies=4, workers=workers, sync=sync, target=0.0, max_seconds=seconds)
    with own_cluster(settings) as client:
        prepared = prepare(client, settings, lambda _: None)
        net = dt.start_tensorflow(client, ps=settings.ps, worker=workers, scorer=1, queue_size=2)
        outcome = train_until_good_enough(net, prepared, settings, lambda _: None)
    begun = outcome.scores[0]["time"]
    points = [(score["time"] - begun, score["loss"], score["step"]) for score in outcome.scores]
    training_s = max(end for account in outcome.roles["worker"] for name, _, end in account["spans"]) - begun
    return {"points": points, "rows_per_s": outcome.rows_trained / training_s}


def seconds_to(points: list[tuple[float, float, float]], loss: float) -> float | None:
    """When the loss was first reached, in seconds from the first score; None where it was not."""
    return next((time_s for time_s, seen, _ in points if seen <= loss), None)


def table_row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the runs of one setting."""
    reached = {}
    for loss in LOSSES:
        times = [seconds_to(run["points"], loss) for run in runs]
        reached[f"s_to_{loss}"] = (
            None if None in times else statistics.median(time for time in times if time is not None)
        )
    rows = statistics.median(run["rows_per_s"] for run in runs)
    return {"setting": name, "rows_per_s": rows, **reached}


def draw(curves: dict[str, list[dict[str, Any]]]) -> None:
    """All runs, one colour a setting, dashed where synchronous."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    colours = dict(zip(WORKERS, ("#0072b2", "#d55e00", "#009e73"), strict=True))
    for (workers, sync), runs in curves.items():
        for number, run in enumerate(runs):
            times, losses, _ = zip(*run["points"], strict=True)
            label = name_of(workers, sync) if number == 0 else None
            axes.plot(times, losses, "--" if sync else "-", color=colours[workers], alpha=0.7, label=label)
    axes.set(
        yscale="log", xlabel="seconds of training", ylabel="validation cross-entropy", title="ps=1, MNIST, 784-100-10"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "scaling.png", dpi=120)


def name_of(workers: int, sync: bool) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}, {'synchronous' if sync else 'asynchronous'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args()
    settings = [(workers, sync) for sync in (False, True) for workers in WORKERS]
    curves: dict[Any, list[dict[str, Any]]] = {setting: [] for setting in settings}
    for run in range(options.runs):  # in turn, so that a slow minute of the machine falls on all
        for setting in settings:
            curves[setting].append(curve(*setting, options.seconds))
            print(f"run {run + 1}: {name_of(*setting)}: {curves[setting][-1]['rows_per_s']:,.0f} rows/s", flush=True)
    rows = [table_row(name_of(*setting), runs) for setting, runs in curves.items()]
    peer = rows[0]
    for row in rows:
        row["rows_per_s_ratio"] = row["rows_per_s"] / peer["rows_per_s"]
        times = "".join(
            f"{row[f's_to_{loss}']:>9.1f}" if row[f"s_to_{loss}"] is not None else f"{'-':>9}" for loss in LOSSES
        )
        print(f"{row['setting']:<24}{row['rows_per_s']:>9,.0f} rows/s ({row['rows_per_s_ratio']:.2f}){times}")
    print(f"{'':<24}{'':>23}" + "".join(f"{f's to {loss}':>9}" for loss in LOSSES))
    draw(curves)
    save("scaling", {"table": rows, "curves": {name_of(*setting): runs for setting, runs in curves.items()}})


if __name__ == "__main__":
    main()
