"""Rows a second of ``dt.predict`` on 2 workers, against Keras in one process and against the naive way with Dask.

    .venv/bin/python benchmarks/predict.py [--rounds 5] [--small]

1.1 million MNIST rows (tiled) through an MLP, and 20,000 pictures of 96 x 96 through a small CNN. All start from rows
that Dask workers hold (Keras: that the process holds), and end when Dask workers hold the predictions. Peers: Keras'
``predict`` in one process with all cores, in a process of its own; ``map_blocks`` with the model in the graph, as it
is found in forums, which calls ``predict`` in the Dask worker. Processes are up and functions compiled: each case runs
once before the clock. All in turn in each round; medians of the rounds.

``sent`` is what a prediction of 10,000 partitions by a model of 500 MB sends to the scheduler, in bytes on the wire.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from distributed.comm.tcp import TCP
from recording import save, summary

import dask_train as dt
from dask_train.datasets.mnist import load_mnist

NUM_WORKERS = 2
AIMS = {"Keras predict": 0.95, "map_blocks": 1.0}


def mlp() -> Any:
    import keras

    layers = [keras.layers.Dense(128, activation="relu"), keras.layers.Dense(64, activation="relu")]
    return keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(10, activation="softmax")])


def cnn() -> Any:
    import keras

    layers = []
    for filters in (16, 32, 64):
        layers += [keras.layers.Conv2D(filters, 3, activation="relu"), keras.layers.MaxPooling2D()]
    return keras.Sequential(
        [keras.Input((96, 96, 3)), *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    )


def mnist_rows(num_rows: int) -> np.ndarray:
    pictures = load_mnist().train_images.reshape(-1, 784)
    pictures = (pictures / np.float32(255)).astype("f4")
    return np.concatenate([pictures] * -(-num_rows // len(pictures)))[:num_rows]


def pictures(num_rows: int) -> np.ndarray:
    return np.random.default_rng(1).random((num_rows, 96, 96, 3), dtype="f4")


CASES: dict[str, tuple[Callable[[], Any], Callable[[int], np.ndarray], int, int, int]] = {
    # model, rows, how many, in how many partitions, batch size
    "MLP": (mlp, mnist_rows, 1_100_000, 44, 256),
    "CNN": (cnn, pictures, 20_000, 40, 64),
}


def one_process(name: str, scale: float, pipe: Any) -> None:
    """Keras' own ``predict`` with all cores; answers with the seconds of each pass that it is asked for."""
    make, rows, num_rows, _, batch_size = CASES[name]
    model, x = make(), rows(int(num_rows * scale))
    model.predict(x[: 4 * batch_size], batch_size=batch_size, verbose=0)
    pipe.send(0.0)
    while pipe.recv():
        start = time.perf_counter()
        model.predict(x, batch_size=batch_size, verbose=0)
        pipe.send(time.perf_counter() - start)


def timed(lazy: Any) -> float:
    """Seconds until the Dask workers hold all blocks."""
    start = time.perf_counter()
    done = lazy.persist()
    wait(done)
    return time.perf_counter() - start


def naive(block: np.ndarray, model: Any, batch_size: int) -> np.ndarray:
    return model.predict(block, batch_size=batch_size, verbose=0)


def case(client: Client, name: str, scale: float, rounds: int) -> list[dict[str, float]]:
    make, rows, num_rows, num_parts, batch_size = CASES[name]
    num_rows, num_parts = int(num_rows * scale), max(NUM_WORKERS, int(num_parts * scale))
    model = make()
    pieces = client.scatter(np.array_split(rows(num_rows), num_parts), direct=True)
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

    def keras_predict() -> float:
        mine.send(True)
        return float(mine.recv())

    ways["Keras predict"] = keras_predict
    for way in ("ours", "map_blocks"):
        ways[way]()
    runs = [{way: num_rows / run() for way, run in ways.items()} for _ in range(rounds)]
    mine.send(False)
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
        LocalCluster(n_workers=NUM_WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        for name in CASES:
            runs = case(client, name, scale, rounds)
            found: dict[str, Any] = {way: summary([run[way] for run in runs]) for way in runs[0]}
            for way, aim in AIMS.items():
                found[f"ours over {way}"] = summary([run["ours"] / run[way] for run in runs])
                print(f"{name}: ours over {way}: {found[f'ours over {way}']['median']:.2f} (aim: {aim})", flush=True)
            told = ", ".join(f"{way} {found[way]['median']:,.0f}" for way in runs[0])
            print(f"{name}: rows a second: {told}", flush=True)
            figures[name] = found
        figures["sent"] = sent(client, args.small)
        print(f"sent to the scheduler: {figures['sent'] / 1e6:.2f} MB (aim: below 5)")
    if not args.small:
        save("predict", {"workers": NUM_WORKERS, "figures": figures})


if __name__ == "__main__":
    main()
