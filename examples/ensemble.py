"""An ensemble: each process beside the data trains a model on its own rows, and the models are combined.

Map and reduce, as the tutorial on distributed TensorFlow puts it: "ensemble learning may send individual machine
learning models to multiple workers, and then combine the classifications to form the final result". What to look at:

* ``dt.train`` runs one function in several processes, and ``session.batches`` gives each its own share of the rows, on
  several hosts those that lie on its own first. The same call gives the same share again, so no model ever sees the
  others' rows. The processes never talk to each other: that is the map.
* The client combines what they return: the mean of their predictions, whose classes are then chosen; and, since all
  began with the same weights, one model whose weights are the mean of theirs. Both are printed beside the single ones.
* Predictions are made on the workers, too, on a second data set of the run that each reads as a whole.

Run it::

    python examples/ensemble.py               # full size, a minute or two on two cores
    python examples/ensemble.py --small       # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import dask.array as da
import numpy as np

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist

BEGUN = time.perf_counter()
BATCH_ROWS = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows, as in CI")
    parser.add_argument("--models", type=int, help="how many (4)")
    args = parser.parse_args()
    num_models = args.models or (2 if args.small else 4)
    num_rows, epochs = (4_000, 2) if args.small else (20_000, 3)
    mnist = load_mnist()
    test = scaled(mnist.test_images), mnist.test_labels.astype("int64")
    with local_client(2) as client:
        x = da.from_array(mnist.train_images[:num_rows], chunks=(num_rows // 8, 28, 28))
        y = da.from_array(mnist.train_labels[:num_rows].astype("int64"), chunks=num_rows // 8)
        say(f"{num_models} models, each on its own {num_rows // num_models:,} rows")
        result = dt.train(
            partial(train_one, epochs=epochs),
            roles={"worker": num_models},
            data=(x.map_blocks(scaled, dtype="float32"), y),
            datasets={"test": test},
            framework="tensorflow",
            recovery=None,
            client=client,
        )
    told = result.results["worker"]
    accuracies = [accuracy_of(predicted, test[1]) for predicted, _ in told]
    for number, accuracy in enumerate(accuracies):
        print(f"  model {number}: test accuracy {accuracy:.4f}")
    voted = accuracy_of(np.mean([predicted for predicted, _ in told], axis=0), test[1])
    weights = [np.mean(alike, axis=0) for alike in zip(*(weights for _, weights in told), strict=True)]
    averaged = accuracy_of(predictions_of(weights, test[0]), test[1])
    say(f"mean of predictions: test accuracy {voted:.4f}; mean of weights: {averaged:.4f}")
    better = voted > np.mean(accuracies)
    print(f"the ensemble is {'better' if better else 'no better'} than its models on average")
    return 0 if better and averaged > 0.5 else 1


def train_one(session: Any, epochs: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Train a model on this worker's rows; what it predicts for the test rows, and its weights."""
    import tensorflow as tf

    model = network()
    optimizer, loss = tf.keras.optimizers.Adam(0.001), tf.keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    for _ in range(epochs):  # one call for all epochs would give each epoch another share
        for x, y in session.batches(batch_size=BATCH_ROWS * session.size):
            value = step(x, y)
    session.report(loss=float(value))
    batches = session.dataset("test").whole().batches(batch_size=1000, shuffle=False)
    predicted = np.concatenate([model(x).numpy() for x, _ in batches])
    return predicted, model.get_weights()


def network() -> Any:
    """The same weights in each process."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def predictions_of(weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """What a model with these weights predicts."""
    model = network()
    model.set_weights(weights)
    return np.asarray(model.predict(x, batch_size=1000, verbose=0))


def accuracy_of(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(predicted.argmax(axis=1) == labels))


def scaled(images: np.ndarray) -> np.ndarray:
    return (images / 255).astype("float32")


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
