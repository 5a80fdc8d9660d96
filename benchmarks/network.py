"""How long a TensorFlow network takes to start inside Dask workers, and whether it trains as fast as one by hand.

    .venv/bin/python benchmarks/network.py [--runs 5] [--steps 1500]

The peer is the same TensorFlow program (1 ps, 2 workers, asynchronous Adam on MNIST, the graph of the main job) started
by hand as plain processes on this machine, with its data in the process's memory. In the network the data comes from
Dask through the workers' queues. Both run in turn, in one run of this program; medians are compared.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from local_network import unused_ports
from recording import save, summary

WORKERS, ROWS, BATCH = 2, 10_000, 100
IMPORT_TENSORFLOW = "import time; t = time.perf_counter(); import tensorflow; print(time.perf_counter() - t)"


def sample() -> tuple[np.ndarray, np.ndarray]:
    """10,000 rows of MNIST as the graph takes them."""
    from dask_train.datasets import load_mnist
    from dask_train.demo.roles import flat, one_hot

    mnist = load_mnist()
    return flat(mnist.test_images[:ROWS]), one_hot(mnist.test_labels[:ROWS])


def block(_: int) -> list[np.ndarray]:
    """What travels through a queue: ``[images, labels]``."""
    return list(sample())


def train_steps(
    cluster: dict[str, list[str]], target: str, index: int, blocks: Iterator[Any], steps: int
) -> dict[str, float]:
    """The program of one worker: so many steps of Adam on what ``blocks`` gives; its steps a second."""
    from dask_train.demo.graph import build, open_session

    graph = build(cluster, "worker", index)
    with open_session(graph, target, "worker", index, chief=index == 0, timeout_s=60) as session:
        done = 0
        images, labels = next(blocks)
        session.run(graph.train, {graph.images: images[:BATCH], graph.labels: labels[:BATCH]})  # the first one compiles
        begun = time.perf_counter()
        while done < steps:
            for start in range(0, min(len(images), BATCH * (steps - done)), BATCH):
                feed = {graph.images: images[start : start + BATCH], graph.labels: labels[start : start + BATCH]}
                session.run(graph.train, feed)
                done += 1
            images, labels = next(blocks)
        return {"steps": done, "seconds": time.perf_counter() - begun}


def role_in_dask(cluster: dict[str, list[str]], steps: int) -> dict[str, float]:
    """The worker's program inside a Dask worker, on what comes through its queue."""
    from distributed import get_worker

    server = get_worker().tensorflow_server
    blocks = iter(get_worker().tensorflow_queue)
    return train_steps(cluster, server.target, server.server_def.task_index, blocks, steps)


def in_dask(steps: int) -> dict[str, float]:
    """Seconds to start, and the steps a second of all workers together."""
    import dask_train as dt
    from dask_train.cluster.local import local_client

    with local_client(1 + WORKERS) as client:
        begun = time.perf_counter()
        net = dt.start_tensorflow(client, ps=1, worker=WORKERS)
        start_s = time.perf_counter() - begun
        # Prepared where they are trained on, as the peer's are.
        places = 2 * net.dask_spec["worker"]
        blocks = [client.submit(block, i, workers=[place], pure=False) for i, place in enumerate(places)]
        client.gather(client.map(len, blocks))
        futures = net.submit("worker", role_in_dask, net.tf_spec.as_dict(), steps)
        while not all(future.done() for future in futures):
            feed = net.feed(blocks, to="worker")
            while feed.waiting and not all(future.done() for future in futures):
                time.sleep(0.02)
        return {"start_s": start_s, "steps_per_s": together(client.gather(futures))}


def by_hand(steps: int) -> dict[str, float]:
    """The steps a second of the same program as plain processes."""
    ports = unused_ports(1 + WORKERS)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = json.dumps({"ps": addresses[:1], "worker": addresses[1:]})

    def start(job: str, index: int) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            os.path.abspath(__file__),
            "--role",
            job,
            "--index",
            str(index),
            "--cluster",
            cluster,
        ]
        command += ["--steps", str(steps)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    server = start("ps", 0)
    workers = [start("worker", index) for index in range(WORKERS)]
    try:
        return {"steps_per_s": together([json.loads(worker.communicate(timeout=300)[0]) for worker in workers])}
    finally:
        for process in [server, *workers]:
            process.kill()
            process.wait()


def role_by_hand(job: str, index: int, cluster: dict[str, list[str]], steps: int) -> None:
    """One plain process of the peer."""
    import tensorflow as tf

    server = tf.distribute.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
    data = sample()
    print(json.dumps(train_steps(cluster, server.target, index, iter(lambda: data, None), steps)))


def together(results: list[dict[str, float]]) -> float:
    """Steps a second of workers that ran at the same time."""
    return sum(result["steps"] / result["seconds"] for result in results)


def slowest_import_s() -> float:
    """The slowest bare ``import tensorflow`` of as many processes at once as the network has."""
    processes = [
        subprocess.Popen([sys.executable, "-c", IMPORT_TENSORFLOW], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(1 + WORKERS)
    ]
    return max(float(process.communicate(timeout=120)[0]) for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cluster", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.role:
        role_by_hand(options.role, options.index, options.cluster, options.steps)
        return
    logging.getLogger("distributed").setLevel(logging.ERROR)
    imports, starts, dask_speeds, hand_speeds = [], [], [], []
    for run in range(options.runs):
        imports.append(slowest_import_s())
        dask_run = in_dask(options.steps)
        starts.append(dask_run["start_s"])
        dask_speeds.append(dask_run["steps_per_s"])
        hand_speeds.append(by_hand(options.steps)["steps_per_s"])
        print(
            f"run {run + 1}: import {imports[-1]:.2f} s, start {starts[-1]:.2f} s, "
            f"{dask_speeds[-1]:.0f} steps/s in Dask, {hand_speeds[-1]:.0f} by hand"
        )
    figures = {
        "network": f"ps=1, worker={WORKERS}",
        "slowest_import_s": summary(imports),
        "start_s": summary(starts),
        "steps_per_s_in_dask": summary(dask_speeds),
        "steps_per_s_by_hand": summary(hand_speeds),
    }
    figures["start_minus_import_s"] = figures["start_s"]["median"] - figures["slowest_import_s"]["median"]
    # Run by run, because the speed of a small machine drifts more from run to run than the two differ.
    figures["speed_ratio"] = summary([ours / peer for ours, peer in zip(dask_speeds, hand_speeds, strict=True)])
    print(f"start - slowest import: {figures['start_minus_import_s']:+.2f} s (aim: at most 1)")
    print(f"steps a second, in Dask / by hand: {figures['speed_ratio']['median']:.3f} (aim: at least 0.97)")
    save("network", figures)


if __name__ == "__main__":
    main()
