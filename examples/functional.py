"""A Keras model with two inputs, two outputs and a training step of its own, by two workers and by one process.

Two handwritten digits in; out come which of them is the larger one, and their sum. What to look at:

* Inputs and targets are dicts of Dask arrays, by the names that the model gives its inputs and outputs.
* ``BothWays`` is a functional model with a ``train_step`` of its own: it looks at each pair both ways round, left and
  right exchanged. It is written as for one process. ``dt.fit`` sums the gradients over the workers within
  ``optimizer.apply_gradients``, each worker's weighted with its share of the batch.
* Each output has its own loss and metrics; metrics and callbacks are of all workers, as if there were one.
* At the end one process trains the same model on the same batches: how far its weights are away is printed. Numbers
  have 64 bits here, since in 32 bits two ways of adding them up drift apart: 3% after 600 steps, both as good.

Run it::

    python examples/functional.py               # 10,000 pairs, about a minute on two cores
    python examples/functional.py --small       # fewer pairs, as in CI
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import dask
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

LEFT, EQUAL, RIGHT = range(3)  # which one is larger
BATCH_SIZE, BLOCK_ROWS = 100, 500
BEGUN = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer pairs, as in CI")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    keras.config.set_floatx("float64")  # the workers take it over with the model
    load_mnist()  # fetched here, once, before Dask's tasks look for it
    with local_client(2) as client, tempfile.TemporaryDirectory() as folder:
        train, held_out = pairs("train", 2_000 if args.small else 10_000), pairs("test", 1_000 if args.small else 5_000)
        settings = {"batch_size": BATCH_SIZE, "epochs": 4, "shuffle": False}

        say(f"{args.workers} workers")
        together, log = made(), Path(folder, "log.csv")
        stopping = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
        callbacks = [stopping, keras.callbacks.CSVLogger(log)]
        result = dt.fit(
            together,
            *train,
            workers=args.workers,
            validation_data=held_out,
            callbacks=callbacks,
            client=client,
            **settings,
        )
        show(result.history)
        print(f"  {result.ledger}; best epoch: {stopping.best_epoch + 1}; CSVLogger wrote {rows_of(log)} lines")

        say("One process, the same batches")
        train, held_out = dask.compute(train, held_out)
        alone = made()
        show(alone.fit(*train, validation_data=held_out, verbose=0, **settings).history)
    own, others = (np.concatenate([w.ravel() for w in m.get_weights()]) for m in (alone, together))
    distance = np.linalg.norm(own - others) / np.linalg.norm(own)
    say(f"{args.workers} workers are within {distance:.0e} of the weights of one process, of the length of these")
    return 0 if distance < 1e-9 else 1


class BothWays(keras.Model):
    """Learns from each pair as it is, and with left and right exchanged."""

    def train_step(self, data: Any) -> dict[str, Any]:
        import tensorflow as tf

        x, y = data
        turned_x = {"left": x["right"], "right": x["left"]}
        turned_y = {"larger": RIGHT - y["larger"], "sum": y["sum"]}
        with tf.GradientTape() as tape:
            told = self(x, training=True)
            loss = self.compute_loss(x, y, told)
            loss = (loss + self.compute_loss(turned_x, turned_y, self(turned_x, training=True))) / 2
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for metric in self.metrics:  # what `compile` was given counts below
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=tf.shape(y["sum"])[0])
        return self.compute_metrics(x, y, told)


def made() -> Any:
    """One convolutional network for both digits; a hidden layer; an output for each question."""
    keras.utils.set_random_seed(1)
    look = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
        ]
    )
    inputs = {name: layers.Input((28, 28, 1), name=name) for name in ("left", "right")}
    seen = layers.Concatenate()([look(inputs["left"]), look(inputs["right"])])
    hidden = layers.Dense(64, activation="relu")(seen)
    larger = layers.Dense(3, activation="softmax", name="larger")(hidden)
    model = BothWays(inputs, {"larger": larger, "sum": layers.Dense(1, name="sum")(hidden)})
    model.compile(
        "adam",
        {"larger": "sparse_categorical_crossentropy", "sum": "mse"},
        loss_weights={"larger": 1.0, "sum": 0.1},
        metrics={"larger": ["accuracy"], "sum": ["mae"]},
    )
    return model


# The pairs


def pairs(part: str, num_rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pictures and answers, in blocks that Dask makes where they are needed."""
    blocks = [delayed(block_of)(part, number) for number in range(num_rows // BLOCK_ROWS)]

    def column(name: str, shape: tuple[int, ...], dtype: str) -> Any:
        arrays = [da.from_delayed(block[name], (BLOCK_ROWS, *shape), dtype) for block in blocks]
        return da.concatenate(arrays)

    x = {name: column(name, (28, 28, 1), "float32") for name in ("left", "right")}
    return x, {"larger": column("larger", (), "int64"), "sum": column("sum", (), "float32")}


def block_of(part: str, number: int) -> dict[str, np.ndarray]:
    """Some pairs, drawn at random."""
    mnist = load_mnist()
    images, labels = getattr(mnist, f"{part}_images"), getattr(mnist, f"{part}_labels").astype("int64")
    left, right = np.random.default_rng(number).integers(len(labels), size=(2, BLOCK_ROWS))
    larger = np.where(labels[left] > labels[right], LEFT, np.where(labels[left] < labels[right], RIGHT, EQUAL))
    return {
        "left": (images[left][..., None] / 255).astype("float32"),
        "right": (images[right][..., None] / 255).astype("float32"),
        "larger": larger,
        "sum": (labels[left] + labels[right]).astype("float32"),
    }


def show(history: dict[str, list[float]]) -> None:
    for epoch, loss in enumerate(history["loss"]):
        accuracy, error = history["val_larger_accuracy"][epoch], history["val_sum_mae"][epoch]
        print(f"  epoch {epoch + 1}: loss {loss:.4f}; held out: larger {accuracy:.4f} right, sum off by {error:.3f}")


def rows_of(log: Path) -> int:
    return len(log.read_text().splitlines()) - 1


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the run has ended, and its cluster is closed.")
