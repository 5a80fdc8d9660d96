"""The plain way to search: ``client.map`` over parameters, on a data set that is published once.

The "Simple Parallelism" of the blog post that this project grew from: many models, each trained on the same data, the
best one taken::

    scores = client.map(train_and_evaluate, params, data="mnist")
    best = client.submit(max, scores)
    best.result()

What to look at:

* The data set goes to the tasks by its name. Each opens it where it is, in the shared memory of the Dask workers:
  ``dt.get_dataset("mnist").to_tf(...)``. Nothing travels with a task or is copied for it, so the shared memory is as
  large after the search as before.
* Tasks train in the Dask workers' own processes. ``dt.search`` trains in processes beside them, and prunes, repeats
  what is lost, and keeps the best model; this way is for those who want nothing but Dask.

Run it::

    python examples/plain_search.py               # full size, a minute or two on two cores
    python examples/plain_search.py --small       # fewer rows and models, as in CI
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when a Dask worker imports TensorFlow

import dask.array as da
import numpy as np

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist

BEGUN = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows and models, as in CI")
    args = parser.parse_args()
    num_rows, epochs = (6_000, 1) if args.small else (60_000, 3)
    params = [
        {"units": units, "rate": rate, "epochs": epochs}
        for units, rate in itertools.product((16, 128) if args.small else (16, 64, 256), (0.0001, 0.001, 0.01))
    ]
    with local_client(2) as client:
        publish(num_rows)
        before = sum(client.run(pool_bytes).values())
        say(f"{len(params)} models on {dt.get_dataset('mnist')}")
        scores = client.map(train_and_evaluate, params, data="mnist", pure=False)
        best = client.submit(max, scores)
        accuracy, chosen = best.result()
        after = sum(client.run(pool_bytes).values())
        for params_of_one, (score, _) in zip(params, client.gather(scores), strict=True):
            print(f"  units {params_of_one['units']:3}, rate {params_of_one['rate']:6g}: test accuracy {score:.4f}")
        for name in dt.list_datasets():
            dt.unpublish_dataset(name)
    say(f"The best of {len(params)} models: {dict(chosen)}, test accuracy {accuracy:.4f}")
    print(f"shared memory: {before / 1e6:,.0f} MB before the search, {after / 1e6:,.0f} MB after it")
    return 0 if accuracy > 0.85 and after == before else 1


def publish(num_rows: int) -> None:
    """MNIST in the Dask workers' shared memory, as two data sets."""
    mnist = load_mnist()
    for name, images, labels in (
        ("mnist", mnist.train_images[:num_rows], mnist.train_labels[:num_rows]),
        ("mnist test", mnist.test_images, mnist.test_labels),
    ):
        chunk = len(images) // 4
        x = da.from_array(images, chunks=(chunk, 28, 28)).map_blocks(scaled, dtype="float32")
        dt.publish_dataset(x, da.from_array(labels.astype("int64"), chunks=chunk), name=name)


def scaled(images: np.ndarray) -> np.ndarray:
    return (images / 255).astype("float32")


def train_and_evaluate(params: dict[str, Any], data: str) -> tuple[float, tuple[tuple[str, Any], ...]]:
    """One model, in a task: its accuracy on the test rows, and its parameters; what is larger is better."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(params["units"], activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(params["rate"]), "sparse_categorical_crossentropy", metrics=["accuracy"])
    batches = dt.get_dataset(data).to_tf(features="x", label="y", batch_size=128, shuffle=True)
    model.fit(batches, epochs=params["epochs"], verbose=0)
    held_out = dt.get_dataset(f"{data} test").to_tf(features="x", label="y", batch_size=1000)
    _, accuracy = model.evaluate(held_out, verbose=0)
    keras.backend.clear_session()  # the next task of this process begins with none of this one's graphs
    return float(accuracy), tuple(params.items())


def pool_bytes() -> int:
    """What the system has given to the file in which a Dask worker's shared memory lies."""
    files = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    pools = {os.stat(file).st_ino: file for file in files if os.readlink(file).startswith("/memfd:dask-train ")}
    return sum(os.stat(file).st_blocks * 512 for file in pools.values())


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
