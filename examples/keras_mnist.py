"""MNIST with Keras on Dask: ``dt.fit`` in place of ``model.fit``, synchronous and with a parameter server.

What to look at:

* The pictures lie in a Dask array. ``dt.fit(model, X, y, workers=2)`` trains the model as it was compiled, in two
  processes beside the data, which take their shares of each global batch from shared memory.
* Two workers end with the weights of one process that calls ``model.fit``: the same rows in the same batches, and
  gradients summed before they are applied.
* With ``ps=1`` the workers train asynchronously; a scorer validates the latest weights beside them, and the run ends
  as soon as its score is good enough.

Run it::

    python examples/keras_mnist.py               # full size, some 90 s on two cores
    python examples/keras_mnist.py --small       # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import dask.array as da
import keras
import numpy as np
from keras import layers

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist

BEGUN = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows, as in CI")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    mnist = load_mnist()
    num_rows = 6_000 if args.small else 60_000
    pictures, labels = mnist.train_images[:num_rows], mnist.train_labels[:num_rows].astype("int64")
    held_out = scaled(mnist.test_images), mnist.test_labels.astype("int64")
    with local_client(2) as client:
        x = da.from_array(pictures, chunks=(num_rows // 8, 28, 28)).map_blocks(scaled, dtype="float32", new_axis=3)
        y = da.from_array(labels, chunks=num_rows // 8)
        held_out = tuple(da.from_array(array, chunks=(2_500, *array.shape[1:])) for array in held_out)
        synchronous(client, x, y, held_out, args)
        asynchronous(client, x, y, held_out, args)
    return 0


def synchronous(client: Any, x: Any, y: Any, held_out: Any, args: argparse.Namespace) -> None:
    """A convolutional network on all workers together, and the same in this process."""
    model, epochs = cnn(), 1 if args.small else 5
    say(f"{args.workers} workers, synchronous")
    result = dt.fit(
        model, x, y, epochs=epochs, batch_size=128, workers=args.workers, validation_data=held_out, client=client
    )
    for epoch, accuracy in enumerate(result.history["val_accuracy"], 1):
        print(f"  epoch {epoch}: loss {result.history['loss'][epoch - 1]:.4f}, test accuracy {accuracy:.4f}")
    print(f"  {result.ledger}")
    if args.small:  # the order of `shuffle=True` is dask-train's own, so that of the collection is compared
        rows = slice(0, 10 * 128)
        alone, together = cnn(), cnn()
        alone.fit(np.asarray(x[rows]), np.asarray(y[rows]), batch_size=128, shuffle=False, verbose=0)
        dt.fit(together, x[rows], y[rows], batch_size=128, shuffle=False, workers=args.workers, client=client)
        own, others = (np.concatenate([w.ravel() for w in m.get_weights()]) for m in (alone, together))
        distance = np.linalg.norm(own - others) / np.linalg.norm(own)
        print(f"after 10 steps {args.workers} workers are within {distance:.0e} of the weights of one process")


def asynchronous(client: Any, x: Any, y: Any, held_out: Any, args: argparse.Namespace) -> None:
    """A perceptron through a parameter server, until a scorer says that it is good enough."""
    model, target = mlp(), 0.9 if args.small else 0.975
    say(f"{args.workers} workers, a parameter server and a scorer")
    result = dt.fit(
        model,
        x,
        y,
        epochs=20,
        batch_size=128,
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


def scaled(pictures: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 1, with a channel."""
    return (pictures[..., None] / 255).astype("float32")


def cnn() -> Any:
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
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def mlp() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
