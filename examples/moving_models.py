"""A Keras model as argument, result and scattered value of Dask tasks, the state of its optimizer kept.

A model is trained on one Dask worker, goes on to another and is trained further there. That must end as if nobody had
moved it: with the same weights as the same training in one place. Run it with ``python examples/moving_models.py``.
"""

from __future__ import annotations

import argparse
import sys

import keras
import numpy as np
from distributed import Client, LocalCluster, get_worker, wait

import dask_train  # noqa: F401 - all it takes to let Keras models move
from dask_train.datasets import load_mnist


class Shift(keras.layers.Layer):
    """A layer of our own, not registered with Keras and not in any package: its class travels with the model."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def call(self, pixels):
        return pixels + self.by


def make_model() -> keras.Model:
    """A small network with what is easily lost on the way: Adam's moments, a random generator, a class of our own."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            Shift(-0.5),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def train(model: keras.Model, images: np.ndarray, labels: np.ndarray, epochs: int) -> keras.Model:
    """An ordinary task: takes a model, returns a model."""
    model.fit(images, labels, batch_size=100, epochs=epochs, shuffle=False, verbose=0)
    print(f"  {get_worker().address}: trained {epochs} epochs, {int(model.optimizer.iterations)} steps in all")
    return model


def accuracy(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> float:
    return model.evaluate(images, labels, batch_size=500, verbose=0, return_dict=True)["accuracy"]


def largest_difference(one: keras.Model, other: keras.Model) -> float:
    """Of any weight, any variable of the optimizer, and the state of any random generator."""
    pairs = zip([*one.variables, *one.optimizer.variables], [*other.variables, *other.optimizer.variables], strict=True)
    return max(float(np.max(np.abs(a.numpy().astype("float64") - b.numpy()))) for a, b in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a thirtieth of the rows, for a quick look")
    arguments = parser.parse_args()
    mnist = load_mnist()
    num_rows, num_test_rows = (2_000, 1_000) if arguments.small else (60_000, 10_000)
    rows = mnist.train_images[:num_rows], mnist.train_labels[:num_rows]
    test_rows = mnist.test_images[:num_test_rows], mnist.test_labels[:num_test_rows]

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        first, second = client.scheduler_info()["workers"]
        data = client.scatter([*rows, *test_rows], broadcast=True)
        train_data, test_data = data[:2], data[2:]
        model = make_model()
        moments = model.optimizer.variables
        print(f"A model of {model.count_params():,} weights, and {len(moments)} variables of its optimizer.")

        print("As an argument to one worker, from there to another, trained on both:")
        halfway = client.submit(train, model, *train_data, 2, workers=first)
        wait(halfway, timeout=120)
        moved = client.submit(train, halfway, *train_data, 1, workers=second)
        wait(moved, timeout=120)

        print("The same without a move:")
        stayed = client.submit(train, model, *train_data, 3, workers=first)
        wait(stayed, timeout=120)

        print("As results:")
        moved_model, stayed_model = moved.result(timeout=60), stayed.result(timeout=60)
        difference = largest_difference(moved_model, stayed_model)
        print(f"  {int(moved_model.optimizer.iterations)} steps each, largest difference {difference:.1e}")

        print("As a scattered value, the same on every worker:")
        [scattered] = client.scatter([moved_model], broadcast=True)
        scores = [
            client.submit(accuracy, scattered, *test_data, workers=worker, pure=False).result(timeout=120)
            for worker in (first, second)
        ]
        print(f"  accuracy {scores[0]:.1%} and {scores[1]:.1%} on {num_test_rows:,} test images")

    # The same sums on the same machine; a step that was lost, or moments that were, would show as 1e-3 and more.
    as_good = difference < 1e-5 and scores[0] == scores[1] and scores[0] > 0.7
    print("Moving made no difference." if as_good else "MOVING MADE A DIFFERENCE.")
    return 0 if as_good else 1


if __name__ == "__main__":
    sys.exit(main())
