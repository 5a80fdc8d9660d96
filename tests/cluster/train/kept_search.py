"""A search that is kept in a folder, and whose third trial waits in its third epoch once: a program to be killed."""

from __future__ import annotations

import os
import sys
import time

import keras
import numpy as np
from distributed import Client
from keras import layers

import dask_train as dt


class Waiting(keras.callbacks.Callback):
    """Notes the epochs that a trial goes through, and waits for its end in the third, once."""

    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def on_epoch_begin(self, epoch, logs=None):
        with open(self.mark, "a") as file:
            file.write(f"{epoch} ")
        if epoch == 2 and not os.path.exists(f"{self.mark}-waited"):
            open(f"{self.mark}-waited", "w").close()
            time.sleep(600)


def rows(seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(200, 6)).astype("f4")
    return x, (x.sum(1) > 0).astype("i8")


def search(folder, client, mark=None, **settings):
    """Four trials of four epochs, one after the other."""

    def build(trial):
        keras.utils.set_random_seed(trial.number)
        units, rate = trial.suggest_int("units", 4, 32), trial.suggest_float("rate", 1e-3, 1e-1, log=True)
        model = keras.Sequential([layers.Input((6,)), layers.Dense(units, "tanh"), layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
        return model, {"callbacks": [Waiting(os.fspath(mark))] if mark and trial.number == 2 else []}

    return dt.search(
        build,
        *rows(0),
        **{
            "validation_data": rows(1),
            "trials": 4,
            "epochs": 4,
            "seed": 3,
            "concurrency": 1,
            "client": client,
            "checkpoint": folder,
            **settings,
        },
    )


if __name__ == "__main__":
    address, folder, mark = sys.argv[1:]
    with Client(address) as client:
        search(folder, client, mark)
