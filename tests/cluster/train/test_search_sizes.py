"""Searches on clusters of other sizes: as small as can be, and growing."""

from __future__ import annotations

import os
import signal

import keras
import numpy as np
import pytest
from distributed import Client
from keras import layers

import dask_train as dt

pytestmark = pytest.mark.slow


def rows():
    x = np.random.default_rng(0).normal(size=(600, 6)).astype("f4")
    return x, (x.sum(1) > 0).astype("i8")


def made():
    model = keras.Sequential([layers.Input((6,)), layers.Dense(2, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def test_one_thread_is_enough_and_room_that_comes_later_is_used(local_clusters):
    with local_clusters() as make:
        cluster = make(n_workers=1, threads_per_worker=1)
        with Client(cluster) as client:

            def build(trial):
                if trial.number == 1:
                    cluster.scale(2)
                    client.wait_for_workers(2)
                return made()

            found = dt.search(build, *rows(), validation_split=0.2, trials=4, epochs=15, batch_size=20, client=client)
            trials = found.trials
            assert [trial.state.name for trial in trials] == ["COMPLETE"] * 4
            assert trials[0].datetime_complete <= trials[1].datetime_start, "one at a time"
            assert any(a.datetime_start < b.datetime_start < a.datetime_complete for a in trials for b in trials)


def test_the_only_dask_worker_is_lost_and_comes_back(local_clusters):
    with local_clusters() as make, Client(make(n_workers=1, threads_per_worker=1)) as client:

        def build(trial):
            if trial.number == 1:  # when the data has been mapped, and the first trial was trained
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            return made()

        found = dt.search(build, *rows(), validation_split=0.2, trials=2, epochs=3, batch_size=20, client=client)
        assert [trial.state.name for trial in found.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
        assert "left the cluster" in found.trials[1].user_attrs["error"]
        assert found.trials[2].user_attrs["retry_of"] == 1
