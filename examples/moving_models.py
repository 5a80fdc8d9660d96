"""A Keras model as argument, result and scattered value of Dask tasks, the state of its optimizer kept.

``import dask_train`` is all that it takes. A model is trained on one Dask worker, goes on to another and is trained
further there; that must end as if nobody had moved it, with the very weights of the same training in one place. The
model has what is easily lost on the way: the moments of Adam, a dropout layer's random generator, and a layer of our
own whose class is in no package.

Run it::

    python examples/moving_models.py            # under a minute
    python examples/moving_models.py --small    # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

# Read when TensorFlow is imported, here and in the Dask workers, which inherit them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # else every process prints a notice about rounding, twice

import keras
import numpy as np
from distributed import Client, Future, LocalCluster, get_worker

import dask_train  # noqa: F401 - lets Keras models move
from dask_train.datasets import load_mnist

TIMEOUT_S = 120


class Shift(keras.layers.Layer):
    """A layer of our own. Its class travels with the model."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def call(self, pixels: Any) -> Any:
        return pixels + self.by


def main() -> int:
    args = parse_args()
    mnist = load_mnist()
    num_rows, num_test_rows = (3_000, 1_000) if args.small else (60_000, 10_000)
    with local_client(num_workers=2) as client:
        first, second = client.nthreads()
        rows = client.scatter([mnist.train_images[:num_rows], mnist.train_labels[:num_rows]], broadcast=True)
        test_rows = client.scatter([mnist.test_images[:num_test_rows], mnist.test_labels[:num_test_rows]])
        model = make_model()
        print(f"A model of {model.count_params():,} weights, made in process {os.getpid()}.")

        print("\n1. As an argument to a task, and from one worker to another")
        halfway = client.submit(train, model, *rows, epochs=2, workers=first)
        print(f"  {told(halfway)}")
        moved = client.submit(train, halfway, *rows, epochs=1, workers=second)
        print(f"  {told(moved)}")

        print("\n2. The same without a move")
        stayed = client.submit(train, model, *rows, epochs=3, workers=first)
        print(f"  {told(stayed)}")

        print("\n3. As results")
        moved_model, stayed_model = moved.result(timeout=TIMEOUT_S), stayed.result(timeout=TIMEOUT_S)
        difference = largest_difference(moved_model, stayed_model)
        print(f"  {len(state(moved_model))} variables, the largest difference between the two is {difference:g}")

        print("\n4. As a scattered value, on every worker")
        scattered = client.scatter(moved_model, broadcast=True)
        scores = [
            client.submit(accuracy, scattered, *test_rows, workers=worker).result(timeout=TIMEOUT_S)
            for worker in (first, second)
        ]
        print(f"  {scores[0]:.1%} and {scores[1]:.1%} of {num_test_rows:,} test images are right")

    # The same sums on the same machine. Adam's moments, had they been lost, would show as 1e-3 and more.
    assert difference <= 1e-6, "moving changed the model"
    assert scores[0] == scores[1] > 0.7
    print("\nMoving made no difference.")
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows, as in CI")
    return parser.parse_args()


@contextmanager
def local_client(num_workers: int) -> Iterator[Client]:
    """A client of a fresh local cluster of so many processes.

    SIGINT is blocked while the cluster starts, which its processes inherit: Ctrl-C reaches this program alone, which
    then ends them in order.
    """
    resource_tracker.ensure_running()  # started later, it would unblock SIGINT in the thread that starts processes
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        cluster = LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None is port 8787, which may be taken
            silence_logs=logging.ERROR,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with cluster, Client(cluster) as client:
        yield client


def make_model() -> keras.Model:
    keras.utils.set_random_seed(7)
    layers = [
        keras.layers.Rescaling(1 / 255),
        Shift(-0.5),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential([keras.Input((28, 28)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def train(model: keras.Model, images: np.ndarray, labels: np.ndarray, epochs: int) -> keras.Model:
    """An ordinary task: takes a model, returns a model."""
    model.fit(images, labels, batch_size=100, epochs=epochs, shuffle=False, verbose=0)
    return model


def told(trained: Future) -> str:
    """What there is to say about a trained model; asked for where it lies."""

    def tell(model: keras.Model) -> str:
        return f"{get_worker().address}, process {os.getpid()}: {int(model.optimizer.iterations)} steps in all"

    return trained.client.submit(tell, trained, pure=False).result(timeout=TIMEOUT_S)


def accuracy(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> float:
    return model.evaluate(images, labels, batch_size=500, verbose=0, return_dict=True)["accuracy"]


def state(model: keras.Model) -> list[np.ndarray]:
    """All that a model must keep: weights, its random generators, and its optimizer's variables."""
    return [keras.ops.convert_to_numpy(variable.value) for variable in (*model.variables, *model.optimizer.variables)]


def largest_difference(one: keras.Model, other: keras.Model) -> float:
    pairs = zip(state(one), state(other), strict=True)
    return max(float(np.max(np.abs(a.astype("float64") - b.astype("float64")))) for a, b in pairs)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the cluster is closed.")
