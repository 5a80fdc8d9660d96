"""Rows a second of ``dt.predict`` on 2 workers, against Keras in one process and against the naive way with Dask.

    .venv/bin/python benchmarks/predict.py [--rounds 5] [--small]

1.1 million MNIST rows (tiled) through an MLP, and 20,000 pictures of 96 x 96 through a small CNN. All start from rows
that Dask workers hold (Keras: that the process holds; Ray: its object store), and end when Dask workers hold the
predictions. Peers: Keras' ``predict`` in one process with all cores, and ``predict_on_batch`` in a loop there;
``map_blocks`` with the model in the graph, as it is found in forums, which calls ``predict`` in the Dask worker; and,
where there is ``.venv-ray``, ``map_batches`` of Ray Data with a pool of two actors (``predict_ray.py``), counted from
their first batch to their last. Processes are up, stay up, and functions are compiled: each case runs once before the
clock. All in turn in each round; medians of the rounds.

``sent`` is what a prediction of 10,000 partitions by a model of 500 MB sends to the scheduler, in bytes on the wire.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from distributed.comm.tcp import TCP
from predict_models import CASES, tiled
from recording import save, summary

import dask_train as dt
from dask_train.datasets.mnist import load_mnist

NUM_WORKERS = 2
AIMS = {"Keras predict": 0.95, "Keras predict_on_batch": None, "map_blocks": 1.0, "Ray Data": 1.2}
RAY = Path(__file__).parents[1] / ".venv-ray" / "bin" / "python"


def rows_of(name: str) -> np.ndarray:
    """Rows, of which there are more when they are repeated."""
    if name == "MLP":
        return (load_mnist().train_images.reshape(-1, 784) / np.float32(255)).astype("f4")
    return np.random.default_rng(1).random((2_000, 96, 96, 3), dtype="f4")


def one_process(name: str, scale: float, pipe: Any) -> None:
    """Keras with all cores: answers with the seconds of each pass by the method that it is asked for."""
    case = CASES[name]
    model, x, batch_size = case.model(), tiled(rows_of(name), int(case.num_rows * scale)), case.batch_size
    model.predict(x[: 4 * batch_size], batch_size=batch_size, verbose=0)
    model.predict_on_batch(x[:batch_size])
    pipe.send(0.0)
    while way := pipe.recv():
        start = time.perf_counter()
        if way == "predict":
            model.predict(x, batch_size=batch_size, verbose=0)
        else:
            for first in range(0, len(x), batch_size):
                model.predict_on_batch(x[first : first + batch_size])
        pipe.send(time.perf_counter() - start)


def timed(lazy: Any) -> float:
    """Seconds until the Dask workers hold all blocks."""
    start = time.perf_counter()
    done = lazy.persist()
    wait(done)
    return time.perf_counter() - start


def naive(block: np.ndarray, model: Any, batch_size: int) -> np.ndarray:
    return model.predict(block, batch_size=batch_size, verbose=0)


def with_ray(name: str, folder: str, num_rows: int, num_parts: int) -> float:
    """Rows a second of Ray Data, in a cluster of its own."""
    file = Path(folder, f"{name}.npy")
    if not file.exists():
        np.save(file, rows_of(name))
    script = str(Path(__file__).with_name("predict_ray.py"))
    command = [str(RAY), script, name, "--rows", str(file), "--num-rows", str(num_rows), "--num-parts", str(num_parts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    return float(json.loads(done.stdout.splitlines()[-1])["rows_a_second"])


def compared(client: Client, name: str, scale: float, rounds: int, folder: str) -> list[dict[str, float]]:
    """Rows a second of each way, round by round."""
    case = CASES[name]
    num_rows, num_parts = int(case.num_rows * scale), max(NUM_WORKERS, int(case.num_parts * scale))
    model, batch_size = case.model(), case.batch_size
    pieces = client.scatter(np.array_split(tiled(rows_of(name), num_rows), num_parts), direct=True)
    sizes = [len(piece) for piece in np.array_split(np.empty(num_rows, "i1"), num_parts)]
    blocks = [
        da.from_delayed(dask.delayed(piece), shape=(size, *model.input_shape[1:]), dtype="f4")
        for piece, size in zip(pieces, sizes, strict=True)
    ]
    x = da.concatenate(blocks).persist()
    wait(x)
    ours = dt.predict(model, x, batch_size=batch_size, client=client)
    graph = x.map_blocks(
        naive,
        model=model,
        batch_size=batch_size,
        dtype="f4",
        drop_axis=list(range(1, x.ndim)),
        new_axis=[1],
        chunks=(x.chunks[0], (10,)),
    )
    ways = {"ours": lambda: timed(ours), "map_blocks": lambda: timed(graph)}
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=one_process, args=(name, scale, theirs), daemon=True)
    process.start()
    mine.recv()

    def keras(way: str) -> float:
        mine.send(way)
        return float(mine.recv())

    ways["Keras predict"] = partial(keras, "predict")
    ways["Keras predict_on_batch"] = partial(keras, "predict_on_batch")
    for way in ("ours", "map_blocks"):
        ways[way]()
    runs = []
    for _ in range(rounds):
        runs.append({way: num_rows / run() for way, run in ways.items()})
        if RAY.exists():
            runs[-1]["Ray Data"] = with_ray(name, folder, num_rows, num_parts)
        print(f"{name}: {', '.join(f'{way} {rate:,.0f}' for way, rate in runs[-1].items())}", flush=True)
    mine.send("")
    process.join(30)
    return runs


def sent(client: Client, small: bool) -> int:
    """Bytes on the wire to the scheduler, of a prediction that is submitted and then cancelled."""
    import keras

    total = 0
    write = TCP.write

    async def counting(comm: TCP, *args: Any, **kwargs: Any) -> int:
        nonlocal total
        size = await write(comm, *args, **kwargs)
        total += size if comm.peer_address == client.scheduler.address else 0
        return size

    units = 2000 if small else 11_200
    model = keras.Sequential([keras.Input((units,)), keras.layers.Dense(units)])
    TCP.write = counting
    try:
        x = da.zeros((10_000, units), chunks=(1, units), dtype="f4")
        done = dt.predict(model, x, client=client).sum().persist()
        while not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks) > 10_000):
            time.sleep(0.1)  # it reads the graph
    finally:
        TCP.write = write
    del done
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a round of few rows, and no file: does it all work?")
    args = parser.parse_args()
    scale, rounds = (0.1, 1) if args.small else (1.0, args.rounds)
    figures: dict[str, Any] = {}
    with (
        dask.config.set({"train.predict.idle": "1h"}),  # the peers' processes stay up between the rounds, too
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=NUM_WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        for name in CASES:
            runs = compared(client, name, scale, rounds, folder)
            found: dict[str, Any] = {way: summary([run[way] for run in runs]) for way in runs[0]}
            for way in [way for way in AIMS if way in runs[0]]:
                found[f"ours over {way}"] = summary([run["ours"] / run[way] for run in runs])
                aim = f" (aim: {AIMS[way]})" if AIMS[way] else ""
                print(f"{name}: ours over {way}: {found[f'ours over {way}']['median']:.2f}{aim}", flush=True)
            told = ", ".join(f"{way} {found[way]['median']:,.0f}" for way in runs[0])
            print(f"{name}: rows a second: {told}", flush=True)
            figures[name] = found
        figures["sent"] = sent(client, args.small)
        print(f"sent to the scheduler: {figures['sent'] / 1e6:.2f} MB (aim: below 5)")
    if not args.small:
        save("predict", {"workers": NUM_WORKERS, "figures": figures})


if __name__ == "__main__":
    main()
