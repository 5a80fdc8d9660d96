"""MNIST with Keras on Dask: ``dt.fit`` in place of ``model.fit``, synchronous and with a parameter server.

What to look at:

* The pictures lie in a Dask array. ``dt.fit(model, X, y, workers=2)`` trains the model as it was compiled, in two
  processes beside the data, which take their shares of each global batch from shared memory.
* Two workers end with the weights of one process that calls ``model.fit``: the same rows in the same batches, and
  gradients summed before they are applied. So they learn as much in as many epochs; one process is run beside them.
* With ``ps=1`` the workers train asynchronously; a scorer validates the latest weights beside them, and the run ends
  as soon as its score is good enough. Each worker's share of a batch is an update by itself there, so learning-rate
  schedules see ``workers`` times as many steps.

Run it::

    python examples/keras_mnist.py               # full size, some three minutes on two cores
    python examples/keras_mnist.py --small       # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from itertools import pairwise
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import dask.array as da
import numpy as np
from dask import delayed

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise

with without_startup_noise():
    import keras
    from keras import layers

BATCH_SIZE = 128
BEGUN = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows, as in CI")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    num_rows = 6_000 if args.small else 60_000
    load_mnist()  # fetched here, once, before Dask's tasks look for it
    with local_client(2) as client:
        x, y = (rows_of(name, num_rows) for name in ("train_images", "train_labels"))
        held_out = tuple(rows_of(name, 10_000) for name in ("test_images", "test_labels"))
        synchronous(client, x, y, held_out, args)
        asynchronous(client, x, y, held_out, args)
    return 0


def synchronous(client: Any, x: Any, y: Any, held_out: Any, args: argparse.Namespace) -> None:
    """A convolutional network on all workers together, and the same in this process."""
    epochs = 1 if args.small else 4
    num_steps = epochs * -(-len(x) // BATCH_SIZE)
    model = cnn(num_steps)
    say(f"{args.workers} workers, synchronous")
    result = dt.fit(
        model,
        x,
        y,
        epochs=epochs,
        batch_size=BATCH_SIZE,
        workers=args.workers,
        validation_data=held_out,
        client=client,
    )
    show(result.history)
    print(f"  {result.ledger}")
    say("One process, the same rows in its own order")
    alone, here = cnn(num_steps), (np.asarray(x), np.asarray(y))
    arrays = tuple(map(np.asarray, held_out))
    show(alone.fit(*here, epochs=epochs, batch_size=BATCH_SIZE, validation_data=arrays, verbose=0).history)
    if args.small:  # and in the order of the collection, since that of `shuffle=True` is dask-train's own
        rows = slice(0, 10 * BATCH_SIZE)
        alone, together = cnn(10), cnn(10)
        alone.fit(here[0][rows], here[1][rows], batch_size=BATCH_SIZE, shuffle=False, verbose=0)
        dt.fit(together, x[rows], y[rows], batch_size=BATCH_SIZE, shuffle=False, workers=args.workers, client=client)
        own, others = (np.concatenate([w.ravel() for w in m.get_weights()]) for m in (alone, together))
        distance = np.linalg.norm(own - others) / np.linalg.norm(own)
        print(f"after 10 steps {args.workers} workers are within {distance:.0e} of the weights of one process")


def asynchronous(client: Any, x: Any, y: Any, held_out: Any, args: argparse.Namespace) -> None:
    """A perceptron through a parameter server, until a scorer says that it is good enough, or to the last epoch."""
    epochs, target = (3, 0.9) if args.small else (4, 0.98)
    model = mlp(epochs * -(-len(x) // BATCH_SIZE) * args.workers)
    say(f"{args.workers} workers, a parameter server and a scorer")
    result = dt.fit(
        model,
        x,
        y,
        epochs=epochs,
        batch_size=BATCH_SIZE,
        workers=args.workers,
        ps=1,
        scorer=1,
        validation_data=held_out,
        stop=f"val_accuracy >= {target}",
        client=client,
    )
    print(f"  ended since {result.stop_reason}, after {int(model.optimizer.iterations):,} updates; {result.ledger}")
    _, accuracy = model.evaluate(*map(np.asarray, held_out), verbose=0)
    print(f"  test accuracy {accuracy:.4f}")


def show(history: dict[str, list[float]]) -> None:
    for epoch, (loss, accuracy) in enumerate(zip(history["loss"], history["val_accuracy"], strict=True), 1):
        print(f"  epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy:.4f}")


def rows_of(name: str, num_rows: int) -> Any:
    """The first rows of one of MNIST's arrays, in 8 blocks that Dask reads where it computes them."""
    shape, dtype = ((28, 28, 1), "float32") if name.endswith("images") else ((), "int64")
    bounds = np.linspace(0, num_rows, 9).astype(int)
    blocks = [
        da.from_delayed(delayed(block_of)(name, first, stop), (stop - first, *shape), dtype)
        for first, stop in pairwise(bounds)
    ]
    return da.concatenate(blocks)


def block_of(name: str, first: int, stop: int) -> np.ndarray:
    """Labels as they are, pixels from 0 to 1 and with a channel."""
    rows = getattr(load_mnist(), name)[first:stop]
    return rows.astype("int64") if rows.ndim == 1 else (rows[..., None] / 255).astype("float32")


def cnn(num_steps: int) -> Any:
    """Two convolutions and a hidden layer, to be trained for so many steps."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    compile_for(model, num_steps)
    return model


def mlp(num_steps: int) -> Any:
    """One hidden layer, to be trained for so many steps."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    compile_for(model, num_steps)
    return model


def compile_for(model: Any, num_steps: int) -> None:
    """Adam, whose learning rate falls to nothing over the training: that is worth some tenths of a percent."""
    rate = keras.optimizers.schedules.CosineDecay(2e-3, num_steps)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the run has ended, and its cluster is closed.")
