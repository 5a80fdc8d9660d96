"""One case of ``handoff.py``, in a process tree of its own; prints one line of JSON.

    .venv/bin/python benchmarks/handoff_cases.py CASE --rows 1100000 [--shuffle]

lazy, persisted, plain
    A collection that nothing of is computed yet, one of ``dask_train.persist``, and one of Dask's own ``persist()``, to
    two roles of ``dask_train.train``.
gather
    Two processes with a Dask client each, directly connected to the Dask workers, gather half of a persisted collection
    chunk by chunk.
queue
    The queues of ``examples/blog_mnist.py``: ``start_tensorflow`` and ``feed``, from all Dask workers to two of them.
generator
    ``tf.data.Dataset.from_generator`` in two processes which have their half in memory as NumPy arrays already.
put
    Seconds of making segments in fresh and in reused memory, over those of copying the same bytes between arrays.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask.array as da
import handoff_rows
import numpy as np
from distributed import Client, LocalCluster, futures_of, get_worker, wait
from handoff_rows import BATCH_ROWS, EPOCHS, NUM_BLOCKS, NUM_COLUMNS, NUM_PROCESSES, Reader, rates, rows_of

import dask_train as dt

# Dask workers and role processes have no benchmarks/ on their path.
cloudpickle.register_pickle_by_value(handoff_rows)

PUT_BLOCKS, PUT_REPEATS = 7, 5
IDLE_S = 3.0  # without an item for so long, a queue's reader has had its last


def collection(num_rows: int, stamps: str = "") -> da.Array:
    """The rows, lazy, in :data:`handoff_rows.NUM_BLOCKS` chunks."""
    chunk_rows = -(-num_rows // NUM_BLOCKS)
    numbers = da.arange(num_rows, chunks=chunk_rows)
    block = functools.partial(stamped_rows, folder=stamps) if stamps else rows_of
    return numbers.map_blocks(
        block,
        dtype=np.float32,
        new_axis=1,
        chunks=(numbers.chunks[0], (NUM_COLUMNS,)),
        meta=np.empty((0, 0), np.float32),
    )


def stamped_rows(numbers: np.ndarray, folder: str) -> np.ndarray:
    """One block, which leaves the time at which it was there."""
    rows = rows_of(numbers)
    Path(folder, str(numbers[0])).write_text(repr(time.time()))
    return rows


@contextlib.contextmanager
def cluster(num_workers: int) -> Iterator[Client]:
    """A local cluster that ends with the ``with``."""
    with (
        LocalCluster(n_workers=num_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
    ):
        yield client


def persisted(client: Client, num_rows: int) -> da.Array:
    """The rows, in Dask's memory."""
    rows = client.persist(collection(num_rows))
    wait(rows)
    return rows


# Ours


def read(shuffle: bool, session: dt.Session) -> dict[str, Any]:
    """A role: it touches every byte of its share."""
    reader = Reader()
    for batch in session.batches(epochs=EPOCHS, batch_size=NUM_PROCESSES * BATCH_ROWS, shuffle=shuffle):
        reader.touch(batch)
        if session.position[1] == 0:
            reader.epoch_ended()
    return reader.told()


def train(rows: da.Array, shuffle: bool) -> list[dict[str, Any]]:
    """One run; what its roles told."""
    return dt.train(functools.partial(read, shuffle), roles={"worker": NUM_PROCESSES}, data=rows).results["worker"]


def ours(how: str, num_rows: int, shuffle: bool) -> dict[str, float]:
    """One run, on a cluster that has done one with a few rows before."""
    with cluster(NUM_PROCESSES) as client, tempfile.TemporaryDirectory() as stamps:
        train(collection(NUM_BLOCKS * NUM_PROCESSES), shuffle)
        rows = collection(num_rows, stamps)
        begun = time.time()
        if how == "persisted":
            rows = dt.persist(rows)
        elif how == "plain":
            rows = client.persist(rows)
        if how != "lazy":
            wait(rows)
        prepared_s, begun = time.time() - begun, time.time()
        readers = train(rows, shuffle)
        found = {"prepared_s": prepared_s, **rates(begun, readers, num_rows)}
        if how == "lazy":
            done = [float(stamp.read_text()) for stamp in Path(stamps).iterdir()]
            first = min(reader["first"] for reader in readers)
            found["after_first_partition_s"] = first - min(done)
            found["after_last_partition_s"] = first - max(done)
        return found


# Processes of the peers' own


def started(role: str, arguments: list[str]) -> list[subprocess.Popen[str]]:
    """This program twice, as ``role``."""
    command = [sys.executable, os.path.abspath(__file__), role, *arguments]
    return [
        subprocess.Popen([*command, "--rank", str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(NUM_PROCESSES)
    ]


def let_go(processes: list[subprocess.Popen[str]], num_rows: int) -> dict[str, float]:
    """Start the clock when all are ready, and take their accounts."""
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n", "a process did not get ready"
        begun = time.time()
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        readers = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
        return rates(begun, readers, num_rows)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ready() -> None:
    """In such a process: the clock may start now."""
    print("ready", flush=True)
    sys.stdin.readline()


def gather(num_rows: int) -> dict[str, float]:
    """See the module."""
    with cluster(NUM_PROCESSES) as client:
        client.publish_dataset(persisted(client, num_rows), name="rows")
        return let_go(started("gather-role", ["--address", client.scheduler.address]), num_rows)


def gather_role(address: str, rank: int) -> None:
    """One process that gathers."""
    reader = Reader()
    with Client(address, direct_to_workers=True) as client:
        mine = futures_of(client.get_dataset("rows"))[rank::NUM_PROCESSES]
        ready()
        for _ in range(EPOCHS):
            for future in mine:
                reader.touch(client.gather(future))
            reader.epoch_ended()
    print(json.dumps(reader.told()))


def generator(num_rows: int, shuffle: bool) -> dict[str, float]:
    """See the module."""
    return let_go(started("generator-role", ["--rows", str(num_rows), *(["--shuffle"] if shuffle else [])]), num_rows)


def generator_role(num_rows: int, shuffle: bool, rank: int) -> None:
    """One process with ``tf.data``; the shares of both are equal."""
    import tensorflow as tf

    mine = rows_of(np.arange(num_rows)[rank::NUM_PROCESSES])
    random = np.random.default_rng(rank)

    def batches() -> Iterator[np.ndarray]:
        order = random.permutation(len(mine)) if shuffle else None
        for start in range(0, len(mine), BATCH_ROWS):
            some = slice(start, start + BATCH_ROWS)
            yield mine[some] if order is None else mine[order[some]]

    signature = tf.TensorSpec((None, NUM_COLUMNS), tf.float32)
    data = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(tf.data.AUTOTUNE)
    next(iter(data))
    reader = Reader()
    ready()
    for _ in range(EPOCHS):
        for batch in data:
            reader.touch(np.asarray(memoryview(batch)))  # no copy
        reader.epoch_ended()
    print(json.dumps(reader.told()))


# The queue of the blog post


def queue_role() -> list[tuple[float, int, float]]:
    """A role in a Dask worker: when each item was there and read, its bytes and its sum."""
    import queue

    items = get_worker().tensorflow_queue
    seen = []
    with contextlib.suppress(queue.Empty):
        item = items.get()
        while True:
            came, total = time.time(), float(item.sum())
            seen.append((came, time.time(), item.nbytes, total))
            del item
            item = items.get(timeout=IDLE_S)
    return seen


def queues(num_rows: int) -> dict[str, float]:
    """See the module."""
    with cluster(1 + NUM_PROCESSES) as client:
        rows = persisted(client, num_rows)
        blocks = futures_of(rows)
        with dt.start_tensorflow(client, ps=1, worker=NUM_PROCESSES, queue_size=2) as net:
            roles = net.submit("worker", queue_role)
            begun = time.time()
            for _ in range(EPOCHS):
                net.feed(blocks, to="worker").wait()
            seen = sorted((item for items in client.gather(roles) for item in items), key=lambda item: item[1])
            del blocks, rows  # nothing needs to be moved when the network closes
    # Who takes which block differs from epoch to epoch, so the account is that of both together.
    assert len(seen) == EPOCHS * NUM_BLOCKS, "blocks are missing"
    told = {
        "first": seen[0][0],
        "ends": [seen[epoch * NUM_BLOCKS - 1][1] for epoch in range(1, EPOCHS + 1)],
        "num_bytes": sum(item[2] for item in seen),
        "sum": sum(item[3] for item in seen),
    }
    return rates(begun, [told], num_rows)


# Putting


def put(num_rows: int) -> dict[str, float]:
    """Medians, in seconds; one partition after the other, all kept until the last is there."""
    from dask_train.data.pool import Pool
    from dask_train.data.segment import Segment

    numbers = np.arange(num_rows)[: PUT_BLOCKS * -(-num_rows // NUM_BLOCKS)]
    parts = np.array_split(rows_of(numbers), PUT_BLOCKS)
    targets = [np.zeros_like(part) + 1 for part in parts]
    num_bytes = sum(part.nbytes for part in parts)

    def timed(work: Callable[[], Any]) -> float:
        """What is made is freed afterwards, off the clock."""
        begun = time.perf_counter()
        made = work()
        took = time.perf_counter() - begun
        del made
        return took

    def copied() -> None:
        for target, part in zip(targets, parts, strict=True):
            np.copyto(target, part)

    cold, warm, copies = [], [], []
    for _ in range(PUT_REPEATS):
        pool = Pool()
        for times in (cold, warm):  # the second time its pages are there
            times.append(timed(lambda: [Segment([part], pool) for part in parts]))  # noqa: B023 - called here
        pool.trim()
        copies.append(timed(copied))
    copy_s = statistics.median(copies)
    return {
        "memcpy_gb_s": num_bytes / copy_s / 1e9,
        "put_cold_over_memcpy": statistics.median(cold) / copy_s,
        "put_warm_over_memcpy": statistics.median(warm) / copy_s,
    }


def main() -> None:
    cases: dict[str, Callable[[argparse.Namespace], Any]] = {
        **{
            how: lambda options: ours(options.case, options.rows, options.shuffle)
            for how in ("lazy", "persisted", "plain")
        },
        "gather": lambda options: gather(options.rows),
        "gather-role": lambda options: gather_role(options.address, options.rank),
        "queue": lambda options: queues(options.rows),
        "generator": lambda options: generator(options.rows, options.shuffle),
        "generator-role": lambda options: generator_role(options.rows, options.shuffle, options.rank),
        "put": lambda options: put(options.rows),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=list(cases))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.getLogger("distributed").setLevel(logging.ERROR)
    found = cases[options.case](options)
    if found is not None:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
