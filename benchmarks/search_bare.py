"""What ``search.py`` compares with: a plain process that trains models one after the other, and what both train."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

from dask_train.datasets import load_mnist

BATCH_ROWS = 128


class Notes(keras.callbacks.Callback):
    """Appends process, time and the CPU time of the process to a file, when training begins and when it has ended."""

    def __init__(self, path: str, trial: int) -> None:
        super().__init__()
        self.path, self.trial = path, trial

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._note("began")

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        self._note("ended")

    def _note(self, what: str) -> None:
        with Path(self.path).open("a") as file:
            file.write(json.dumps([os.getpid(), self.trial, what, time.time(), time.process_time()]) + "\n")


def rows(num_rows: int) -> tuple[Any, Any]:
    """The first rows of MNIST to train on, and as many as a sixth of them to validate on."""
    mnist = load_mnist()
    few = num_rows // 6
    train = (mnist.train_images[:num_rows] / 255).astype("f4")[..., None], mnist.train_labels[:num_rows].astype("i8")
    test = (mnist.test_images[:few] / 255).astype("f4")[..., None], mnist.test_labels[:few].astype("i8")
    return train, test


def network(units: int, rate: float) -> Any:
    """A small convolutional network."""
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(units, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    """Train what is told on the command line: rows, epochs, trials as JSON, the file for notes."""
    num_rows, epochs, trials, path = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
    (x, y), validation = rows(num_rows)
    network(8, 0.001).fit(x[:1], y[:1], verbose=0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()  # all processes begin together
    for number, params in trials:
        network(**params).fit(
            np.asarray(x),
            y,
            batch_size=BATCH_ROWS,
            epochs=epochs,
            validation_data=validation,
            callbacks=[Notes(path, number)],
            verbose=0,
        )


if __name__ == "__main__":
    main()
