"""How many batches a second reach a ``tf.function``: ``session.batches`` against ``tf.data`` in a process of its kind.

    .venv/bin/python benchmarks/feed.py [--rounds 5] [--only '128 x 784'] [--small] [--profile]

Batches of 128 x 784 and of 256 x 64 float32, in order and shuffled, one ``dask_train`` role with
``framework="tensorflow"``. In each round and for each shape one run: its role goes through all feeds in turn, each a
warm-up epoch and then some that count, the first feed another one in each round. The peers read a NumPy copy of the
same rows, in the same process:

* ``from_generator`` over batches: slices of the array; shuffled, rows of a new permutation each epoch.
* ``from_tensor_slices(x).batch(b)``; shuffled, ``.shuffle(10_000)`` before it.
* the same over the rows' numbers, with ``tf.gather`` in a parallel ``map`` for the rows: kinder to ``tf.data``, as it
  moves no row by itself.

Beside them ``to_tf`` of the same rows as a published data set, which a client in the role opens.

All but ours have a ``prefetch``. "No feed" are tensors that were there before the clock: nobody can be faster. The
step sums 8 columns of its batch, so that the feed is most of what is measured. ``--profile`` runs ``session.batches``
alone, once in each setting, and prints where the time of the role's main thread and of the thread that prepares batches
goes.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import logging
import os
import pstats
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt

# columns, rows of a batch, rows, and for --small
SHAPES = {"128 x 784": (784, 128, 165_000, 33_000), "256 x 64": (64, 256, 600_000, 100_000)}
EPOCHS = 3  # that count
NUM_BLOCKS = 11
SHUFFLE_BUFFER = 10_000
AIM = 1.4
OURS, PUBLISHED, AT_HAND = "session.batches", "to_tf", "no feed"
NAME = "feed"  # of the published data set
# What the aim is measured against: the best of them.
PEERS = ("from_generator", "from_tensor_slices", "tf.gather of numbers")


def block(numbers: np.ndarray, columns: int) -> np.ndarray:
    """Rows of these numbers."""
    return np.add.outer((numbers % 1000).astype(np.float32), np.arange(columns, dtype=np.float32))


def collection(num_rows: int, columns: int) -> da.Array:
    """The rows, lazy."""
    numbers = da.arange(num_rows, chunks=-(-num_rows // NUM_BLOCKS))
    return numbers.map_blocks(
        block,
        columns=columns,
        dtype=np.float32,
        new_axis=1,
        chunks=(numbers.chunks[0], (columns,)),
        meta=np.empty((0, 0), np.float32),
    )


# In the role


def peers(rows: np.ndarray, batch_rows: int, shuffle: bool) -> dict[str, Callable[[], Any]]:
    """What makes each of the data sets of ``tf.data``."""
    import tensorflow as tf

    random = np.random.default_rng(0)

    def batches() -> Iterator[np.ndarray]:
        order = random.permutation(len(rows)) if shuffle else None
        for start in range(0, len(rows), batch_rows):
            some = slice(start, start + batch_rows)
            yield rows[some] if order is None else rows[order[some]]

    def batched(data: tf.data.Dataset) -> tf.data.Dataset:
        return (data.shuffle(SHUFFLE_BUFFER) if shuffle else data).batch(batch_rows)

    def gathered() -> tf.data.Dataset:
        tensor = tf.constant(rows)
        numbers = batched(tf.data.Dataset.range(len(rows)))
        return numbers.map(lambda some: tf.gather(tensor, some), num_parallel_calls=tf.data.AUTOTUNE)

    signature = tf.TensorSpec((None, rows.shape[1]), tf.float32)
    return {
        "from_generator": lambda: tf.data.Dataset.from_generator(batches, output_signature=signature),
        "from_tensor_slices": lambda: batched(tf.data.Dataset.from_tensor_slices(rows)),
        "tf.gather of numbers": gathered,
    }


def stepper() -> Callable[[Any], Any]:
    """The step: it touches its batch."""
    import tensorflow as tf

    return tf.function(lambda batch: tf.reduce_sum(batch[:, :8]))


def at_hand(rows: np.ndarray, batch_rows: int) -> list[Any]:
    """All batches as tensors that are there already, on the rows' own memory."""
    import tensorflow as tf

    starts = range(0, len(rows), batch_rows)
    return [tf.experimental.dlpack.from_dlpack(rows[start : start + batch_rows].__dlpack__()) for start in starts]


def rate_of_ours(session: dt.Session, batch_rows: int, shuffle: bool, step: Callable[[Any], Any]) -> float:
    """Batches a second of ``session.batches``, its first epoch not counted."""
    num_batches, begun = 0, 0.0
    for batch in session.batches(epochs=1 + EPOCHS, batch_size=batch_rows, shuffle=shuffle):
        step(batch)
        num_batches += 1
        if session.position == (1, 0):
            num_batches, begun = 0, time.perf_counter()
    return num_batches / (time.perf_counter() - begun)


def rate_of_peer(data: Any, step: Callable[[Any], Any]) -> float:
    """Batches a second of a ``tf.data.Dataset``, its first epoch not counted."""
    num_batches, begun = 0, 0.0
    for epoch in range(1 + EPOCHS):
        if epoch == 1:
            num_batches, begun = 0, time.perf_counter()
        for batch in data:
            step(batch)
            num_batches += 1
    return num_batches / (time.perf_counter() - begun)


def rows_of_role(session: dt.Session, num_rows: int, columns: int) -> np.ndarray:
    """A NumPy copy of all of the role's rows, aligned for DLPack."""
    from dask_train.data.buffers import empty_bytes

    rows = empty_bytes(4 * num_rows * columns).view(np.float32).reshape(num_rows, columns)
    start = 0
    for batch in session.batches(batch_size=10_000, shuffle=False):
        rows[start : start + len(batch)] = memoryview(batch)
        start += len(batch)
    return rows


def rate_of_published(address: str, batch_rows: int, shuffle: bool, step: Callable[[Any], Any]) -> float:
    """Batches a second of ``to_tf`` of the published data set, opened by a client in this process."""
    import tensorflow as tf

    with Client(address, set_as_default=False) as client:
        data = dt.get_dataset(NAME, client=client).to_tf(batch_size=batch_rows, shuffle=shuffle)
        return rate_of_peer(data.prefetch(tf.data.AUTOTUNE), step)


def feed_all(shape: str, num_rows: int, address: str, turn: int, session: dt.Session) -> dict[str, float]:
    """A role: the batches a second of each feed, in a sequence that turns with the rounds."""
    import tensorflow as tf

    columns, batch_rows, *_ = SHAPES[shape]
    rows, step = rows_of_role(session, num_rows, columns), stepper()
    found = {}
    for shuffle in (False, True):
        names = [OURS, *PEERS, *([PUBLISHED] if address else []), *([] if shuffle else [AT_HAND])]
        makers = peers(rows, batch_rows, shuffle)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name == OURS:
                rate = rate_of_ours(session, batch_rows, shuffle, step)
            elif name == PUBLISHED:
                rate = rate_of_published(address, batch_rows, shuffle, step)
            elif name == AT_HAND:
                rate = rate_of_peer(at_hand(rows, batch_rows), step)
            else:
                rate = rate_of_peer(makers[name]().prefetch(tf.data.AUTOTUNE), step)
            found[f"{name}, {_order(shuffle)}"] = rate
            session.should_stop()  # tells the run that this goes on
    return found


def profiled(batch_rows: int, shuffle: bool, session: dt.Session) -> str:
    """A role: where the time of ``session.batches`` goes, in words."""
    from dask_train.data.ahead import Ahead

    ahead = cProfile.Profile()
    work = Ahead._work

    def work_profiled(self: Any, prepared: Iterator[Any]) -> None:
        ahead.runcall(work, self, prepared)

    Ahead._work = work_profiled
    step = stepper()
    plain = rate_of_ours(session, batch_rows, shuffle, step)
    main = cProfile.Profile()
    rate = main.runcall(rate_of_ours, session, batch_rows, shuffle, step)
    told = io.StringIO()
    for name, profile in (("main thread", main), ("thread that prepares batches", ahead)):
        if not profile.getstats():
            continue  # views in order need no thread
        told.write(f"{name}, profiled: {rate:,.0f} batches/s, {plain:,.0f} without a profile of the main thread\n")
        pstats.Stats(profile, stream=told).sort_stats("tottime").print_stats(18)
    return told.getvalue()


# In the client


def cluster() -> LocalCluster:
    """One Dask worker, which has the rows; the role has the machine's other core."""
    return LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0")


def in_role(function: Callable[[dt.Session], Any], rows: da.Array) -> Any:
    """What the function returns in a role of its own."""
    return dt.train(function, roles={"worker": 1}, data=rows, framework="tensorflow").results["worker"][0]


def one_round(turn: int, shapes: list[str], small: bool) -> dict[str, float]:
    """Every feed of every shape once."""
    found = {}
    with cluster() as local, Client(local):
        for shape in shapes:
            columns, _, *sizes = SHAPES[shape]
            rows, address = collection(sizes[small], columns), ""
            if hasattr(dt, "publish_dataset"):
                dt.publish_dataset(rows, name=NAME)
                rows, address = dt.get_dataset(NAME), local.scheduler_address
            rates = in_role(partial(feed_all, shape, sizes[small], address, turn), rows)
            found |= {f"{shape}, {name}": rate for name, rate in rates.items()}
            if address:
                del rows
                dt.unpublish_dataset(NAME)
    return found


def summarise(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Batches a second by case; and ours over the best peer of each setting, round by round."""
    ratios = {}
    for case in runs[0]:
        shape, name, order = case.split(", ")
        if name in (OURS, PUBLISHED):
            best = [max(run[f"{shape}, {peer}, {order}"] for peer in PEERS) for run in runs]
            ratios[case] = summary([run[case] / peer for run, peer in zip(runs, best, strict=True)])
    return {"batches_per_s": {case: summary([run[case] for run in runs]) for case in runs[0]}, "over_best": ratios}


def show(figures: dict[str, Any]) -> None:
    """The medians."""
    for case, found in figures["batches_per_s"].items():
        print(f"{case:44}{found['median']:8,.0f} batches/s, {1e6 / found['median']:5,.0f} µs each", end="")
        if case in figures["over_best"]:
            ratio = figures["over_best"][case]["median"]
            print(f", {ratio:.2f} times the best of tf.data (aim: at least {AIM:g})", end="")
        print()


def _order(shuffle: bool) -> str:
    return "shuffled" if shuffle else "in order"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="shapes")
    parser.add_argument("--small", action="store_true", help="few rows and a round: does it all work?")
    parser.add_argument("--profile", action="store_true", help="only where the time of session.batches goes")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if options.profile:
        for shape in options.only:
            columns, batch_rows, *sizes = SHAPES[shape]
            for shuffle in (False, True):
                print(f"== {shape}, {_order(shuffle)}")
                with cluster() as local, Client(local):
                    rows = collection(sizes[options.small], columns)
                    print(in_role(partial(profiled, batch_rows, shuffle), rows))
        return
    runs = []
    for turn in range(1 if options.small else options.rounds):
        runs.append(one_round(turn, options.only, options.small))
        print(f"round {turn + 1}: {', '.join(f'{case} {rate:,.0f}' for case, rate in runs[-1].items())}", flush=True)
    figures = summarise(runs)
    show(figures)
    if options.small or options.only != list(SHAPES):
        print("not written: only a run of all shapes in full size is")
        return
    save("feed", {"epochs": EPOCHS, "shuffle_buffer": SHUFFLE_BUFFER, **figures})


if __name__ == "__main__":
    main()
