"""What a lost role costs: seconds until its replacement reports, what the others notice, and the price of reports.

    .venv/bin/python benchmarks/losses.py [--repeats 5] [--seconds 10]

* Three roles report every 20 ms; one is killed with SIGKILL. Seconds from there to its replacement's first report, and
  the longest gap between two reports of a survivor in the seconds after the kill, against the longest one in as many
  quiet seconds before it, in the same run. A gap is between the reports' own times, as the roles made them, and once
  more between their arrivals at the client, which get them in bundles.
* Two roles report 500 times a second each. CPU time that the Dask workers (the agents live there), the scheduler (a
  process of its own) and the client (the run's driver lives there) take more than in a run in which the same roles
  report nothing, in percent of a core.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import psutil
from distributed import Client, LocalCluster
from distributed.deploy.subprocess import SubprocessCluster
from recording import save, summary

import dask_train as dt

NUM_ROLES, EVERY_S = 3, 0.02
STRETCH_S = 3.0  # before the kill, and after it
WARM_S = 1.0  # after the first reports of all, before anything counts
REPORTERS, REPORTS_PER_S = 2, 500
PATIENCE_S = 60.0


def beat(every_s: float, reports: bool, session: dt.Session) -> None:
    """A role: reports at a steady rate, or only works through the same loop; catches up when it is late."""
    session.report(begun=1)
    due = time.monotonic()
    while not session.should_stop():
        due += every_s
        time.sleep(max(0.0, due - time.monotonic()))
        if reports:
            session.report(value=0.5)


# A loss


def lose_a_role() -> dict[str, float]:
    """One run in which the last of the roles is killed."""
    run = dt.train(partial(beat, EVERY_S, True), roles={"worker": NUM_ROLES}, recovery="role", name="loss", wait=False)
    seen: list[tuple[float, dict[str, Any]]] = []  # when it arrived, and what
    quiet = killed = back = 0.0
    victim = NUM_ROLES - 1
    for score in run.scores():
        now = time.time()
        seen.append((now, score))
        if not quiet and len({score["rank"] for _, score in seen}) == NUM_ROLES:
            quiet = now + WARM_S
        if quiet and not killed and now > quiet + STRETCH_S:
            killed = time.time()
            os.kill(run.status()["roles"][victim]["pid"], signal.SIGKILL)
        if killed and not back and score["attempt"]:
            back = score["time"]
        if killed and now > killed + (STRETCH_S if back else PATIENCE_S):
            break
    run.stop()
    if not back:
        raise RuntimeError(f"Nobody took the place of the role that was killed within {PATIENCE_S:g} s.")
    survivors = [[(at, score) for at, score in seen if score["rank"] == rank] for rank in range(victim)]
    made = [[score["time"] for _, score in scores] for scores in survivors]
    arrived = [[at for at, _ in scores] for scores in survivors]
    end = max(killed + STRETCH_S, back)
    start = max(killed - (end - killed), quiet)  # as long as what is looked at after the kill
    return {
        "replaced_s": back - killed,
        "gap_quiet_s": longest_gap_s(made, start, killed),
        "gap_loss_s": longest_gap_s(made, killed, end),
        "arrival_gap_quiet_s": longest_gap_s(arrived, start, killed),
        "arrival_gap_loss_s": longest_gap_s(arrived, killed, end),
    }


def longest_gap_s(by_role: Iterable[list[float]], start: float, end: float) -> float:
    """The longest time between two neighbours of one role, of which the later one lies between start and end."""
    return max(
        later - earlier for times in by_role for earlier, later in itertools.pairwise(times) if start < later <= end
    )


# The price of reports


def cpu_of_reports(seconds: float) -> dict[str, float]:
    """Percent of a core that reports cost each process, over what the same roles cost without them."""
    with separate_cluster() as cluster, Client(cluster) as client:
        client.wait_for_workers(REPORTERS, timeout=PATIENCE_S)
        workers = list(client.run(os.getpid).values())
        processes = {"workers": workers, "scheduler": [client.run_on_scheduler(os.getpid)], "client": [os.getpid()]}
        assert len({pid for pids in processes.values() for pid in pids}) == len(workers) + 2, "they share a process"
        silent = share_of_a_core(processes, reports=False, seconds=seconds)
        loud = share_of_a_core(processes, reports=True, seconds=seconds)
    found = {f"{name}_percent": 100 * (loud[name] - silent[name]) for name in processes}
    return {"reports_per_s": loud["reports_per_s"], **found}


def separate_cluster() -> SubprocessCluster:
    """A scheduler and Dask workers that are processes of their own, all three kinds apart from the client."""
    return SubprocessCluster(
        n_workers=REPORTERS,
        threads_per_worker=2,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.ERROR,
        worker_kwargs={"dashboard_address": None},
    )


def share_of_a_core(processes: dict[str, list[int]], *, reports: bool, seconds: float) -> dict[str, float]:
    """CPU seconds a second of each process while roles report or don't, and how many reports came in a second."""
    role = partial(beat, 1 / REPORTS_PER_S, reports)
    run = dt.train(role, roles={"worker": REPORTERS}, recovery=None, name="reports", wait=False)
    deadline = time.monotonic() + PATIENCE_S
    while run.status()["num_scores"] < REPORTERS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"The roles did not report within {PATIENCE_S:g} s: {run}")
        time.sleep(0.05)
    time.sleep(WARM_S)
    before, num_before, begun = cpu_s(processes), run.status()["num_scores"], time.monotonic()
    time.sleep(seconds)
    after, num_after, lasted_s = cpu_s(processes), run.status()["num_scores"], time.monotonic() - begun
    run.stop()
    shares = {name: (after[name] - before[name]) / lasted_s for name in processes}
    return {"reports_per_s": (num_after - num_before) / lasted_s, **shares}


def cpu_s(processes: dict[str, list[int]]) -> dict[str, float]:
    """CPU seconds that processes have taken so far, their children not counted."""
    return {name: sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids) for name, pids in processes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="for which CPU time is measured (%(default)g)")
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    losses, prices = [], []
    for repeat in range(options.repeats):
        with (
            LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster),
        ):
            losses.append(lose_a_role())
        prices.append(cpu_of_reports(options.seconds))
        print(f"repeat {repeat + 1}: replaced after {losses[-1]['replaced_s']:.2f} s, {prices[-1]}", flush=True)
    figures = {name: summary([loss[name] for loss in losses]) for name in losses[0]}
    figures |= {name: summary([price[name] for price in prices]) for name in prices[0]}
    middle = {name: figure["median"] for name, figure in figures.items()}
    print(f"SIGKILL to the replacement's first report: {middle['replaced_s']:.2f} s")
    for which, what in (("gap", "longest gap of the survivors' reports"), ("arrival_gap", "between their arrivals")):
        loss, quiet = 1000 * middle[f"{which}_loss_s"], 1000 * middle[f"{which}_quiet_s"]
        print(f"{what}: {loss:.0f} ms around the kill, {quiet:.0f} ms in the quiet before")
    print(f"{middle['reports_per_s']:.0f} reports a second take, in percent of a core: ", end="")
    shares = {"Dask workers together": "workers", "scheduler": "scheduler", "client": "client"}
    print(", ".join(f"{name} {middle[f'{key}_percent']:.1f}" for name, key in shares.items()))
    save("losses", {"stretch_s": STRETCH_S, "every_s": EVERY_S, **figures})


if __name__ == "__main__":
    main()
