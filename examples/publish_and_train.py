"""A Dask frame, published once in shared memory; two processes open it, and train one TensorFlow model together.

The program of "Dask on Vineyard": MNIST as a frame of images and labels, many times over, prepared by Dask; then
TensorFlow's ``MultiWorkerMirroredStrategy``, in processes that know nothing of each other's data. What to look at:

* ``publish_dataset(frame, name="mnist")`` puts the frame's columns into the shared memory of the Dask workers, once.
  The client that has done so goes; the data set stays, and lists of images have become one column of ``(28, 28)``.
* Each training process opens it by its name: ``get_dataset("mnist").to_tf(features="x", label="y", shard=(i, 2))`` is
  a ``tf.data.Dataset`` over its half of the rows. Nothing is copied until a batch is gathered: the shared memory does
  not grow when two processes open it, and each counts (PSS) only the rows that it has read.
* The two train in step: after 3 epochs of 70 batches of 64 rows each, their weights are the same to the last bit.

Run it::

    python examples/publish_and_train.py               # a minute on two cores, and 4 GB of shared memory
    python examples/publish_and_train.py --small       # fewer rows, as in CI

The training loop is written out: Keras 3 can't ``fit`` under this strategy. On several hosts, start the processes
there with the hosts' names in ``TF_CONFIG``; each maps what lies on its host.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when the processes that train import TensorFlow

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise

NUM_PROCESSES, PER_WORKER_BATCH_SIZE, EPOCHS, LEARNING_RATE = 2, 64, 3, 0.05
BEGUN = time.perf_counter()


# The client: this process


def main() -> int:
    args = parse_args()
    if args.train is not None:
        train(*args.train)
        return 0
    with local_client(2) as client, tempfile.TemporaryDirectory() as folder:
        before = shmem()
        with Client(client.scheduler.address, set_as_default=False) as publisher:
            publish(publisher, args.copies, args.rows)
        data = dt.get_dataset("mnist")
        say(f"The publishing client has gone; {data}")
        print(f"shared memory: {shared_memory(client, before)} for {megabytes(data.nbytes)} of rows")
        run_together(client, folder, args.steps)
        print(f"shared memory after both have trained: {shared_memory(client, before)}")
        num_bytes = sum(client.run(pool_bytes).values())
        told = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(NUM_PROCESSES)]
        weights = [list(np.load(Path(folder, f"{rank}.npz")).values()) for rank in range(NUM_PROCESSES)]
        rows = [each["rows"] for each in told]
        print(f"rows: {' + '.join(f'{count:,}' for count in rows)} of {data.num_rows:,}")
        size = data.nbytes
        del data
        dt.unpublish_dataset("mnist")
    furthest = max(float(np.abs(a - b).max()) for a, b in zip(*weights, strict=True))
    accuracy = told[0]["accuracy"]
    print(f"furthest weight of one process from that of the other: {furthest:g}")
    say(f"Test accuracy {accuracy:.4f}")
    return 0 if furthest == 0 and accuracy > 0.8 and num_bytes < 1.1 * size else 1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="4 copies of 10,000 rows and half of the steps, as in CI")
    parser.add_argument("--copies", type=int, help="how many times MNIST is repeated (20)")
    parser.add_argument("--train", nargs=5, help=argparse.SUPPRESS)  # how this program starts the processes that train
    args = parser.parse_args()
    args.copies = args.copies or (4 if args.small else 20)
    args.rows, args.steps = (10_000, 35) if args.small else (60_000, 70)
    return args


def say(what: str) -> None:
    print(f"{time.perf_counter() - BEGUN:6.1f} s  {what}", flush=True)


def publish(client: Client, copies: int, num_rows: int) -> None:
    """Let Dask make the frame, and give it a name."""
    with dask.config.set({"dataframe.convert-string": False}):  # Dask would make text of the column of images
        frame = dd.from_delayed([delayed(get_mnist)(num_rows) for _ in range(copies)], meta=get_mnist(1))
    say(f"Dask prepares {copies} x {num_rows:,} rows")
    dt.publish_dataset(frame, name="mnist", client=client)


def run_together(client: Client, folder: str, steps_per_epoch: int) -> None:
    """Run the processes that train, to their end."""
    ports = free_ports(NUM_PROCESSES)
    config = {"cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]}}
    with ExitStack() as stack:
        processes = []
        for rank in range(NUM_PROCESSES):
            with_task = json.dumps({**config, "task": {"type": "worker", "index": rank}})
            told = (rank, client.scheduler.address, folder, steps_per_epoch, BEGUN)
            command = [sys.executable, __file__, "--train", *map(str, told)]
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # they inherit it: Ctrl-C is for us
            try:
                processes.append(subprocess.Popen(command, env={**os.environ, "TF_CONFIG": with_task}))
                stack.callback(end, processes[-1])
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):  # the other would wait for it
                break
            time.sleep(0.1)
        if any(process.poll() for process in processes):
            sys.exit("A process that trains has failed.")


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def free_ports(num: int) -> list[int]:
    with ExitStack() as stack:
        holders = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(num)]
        return [holder.getsockname()[1] for holder in holders]


def shared_memory(client: Client, before: int) -> str:
    """What the Dask workers have; and what the whole machine has more than before, with that of other programs."""
    more = megabytes(shmem() - before)
    return f"{megabytes(sum(client.run(pool_bytes).values()))} (the machine's Shmem: {more} more than before)"


def pool_bytes() -> int:
    """What the system has given to the file in which a Dask worker's shared memory lies."""
    files = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    pools = [file for file in files if os.readlink(file).startswith("/memfd:dask-train ")]
    return sum(os.stat(file).st_blocks * 512 for file in pools)


def shmem() -> int:
    return field_bytes(Path("/proc/meminfo"), "Shmem:")


def field_bytes(path: Path, name: str) -> int:
    return sum(int(line.split()[1]) << 10 for line in path.read_text().splitlines() if line.startswith(name))


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


# The Dask tasks


def get_mnist(num_rows: int) -> pd.DataFrame:
    """Images from 0 to 1, one a row, and labels."""
    rows = load_mnist()
    images = rows.train_images[:num_rows] / np.float32(255)
    return pd.DataFrame({"x": list(images), "y": rows.train_labels[:num_rows].astype(np.int64)})


# The processes that train


def train(rank: str, address: str, folder: str, steps_per_epoch: str, begun: str) -> None:
    """One of those that train: open the data set, train in step with the other, tell what came of it."""
    global BEGUN  # noqa: PLW0603 - the clock of all processes of a machine is one
    BEGUN = float(begun)
    with without_startup_noise():
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before there is any tensor
    with Client(address):
        data = dt.get_dataset("mnist")
        rows = data.to_tf(features="x", label="y", shard=(int(rank), NUM_PROCESSES))
        say(f"worker {rank} opened {rows.cardinality():,} rows; {memory()}")
        batches = rows.repeat().batch(PER_WORKER_BATCH_SIZE).prefetch(2)
        with strategy.scope():
            model = build_cnn_model()
            optimizer = tf.keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)
            optimizer.build(model.trainable_variables)
        step = train_step(strategy, model, optimizer)
        stream = iter(batches)
        for epoch in range(EPOCHS):
            losses = [float(step(*next(stream))) for _ in range(int(steps_per_epoch))]
            if rank == "0":
                say(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")
        say(f"worker {rank} is done; {memory()}")
    np.savez(Path(folder, f"{rank}.npz"), *model.get_weights())
    result = {"rows": int(rows.cardinality()), "accuracy": test_accuracy(model)}
    Path(folder, f"{rank}.json").write_text(json.dumps(result))


def build_cnn_model() -> Any:
    """The model; every process makes the same one."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def train_step(strategy: Any, model: Any, optimizer: Any) -> Any:
    """One step of all: each has the gradients of its batch, the optimizer sums them. Gives the global batch's loss."""
    import tensorflow as tf

    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def on_replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) / (PER_WORKER_BATCH_SIZE * NUM_PROCESSES)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(x: Any, y: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(on_replica, args=(x, y)), axis=None)

    return step


def test_accuracy(model: Any) -> float:
    """The part of the 10,000 test rows that are told right."""
    rows = load_mnist()
    told = [model(images / np.float32(255)).numpy().argmax(axis=1) for images in np.split(rows.test_images, 100)]
    return float((np.concatenate(told) == rows.test_labels).mean())


def memory() -> str:
    """What a process takes, pages that it shares with others counted in part (PSS); and its part of the data set."""
    whole, shared = (field_bytes(Path("/proc/self/smaps_rollup"), name) for name in ("Pss:", "Pss_Shmem:"))
    return f"it takes {megabytes(whole)} (PSS), {megabytes(shared)} of it shared memory"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the processes and their cluster are closed.")
