"""A number a batch counts once over all workers, however their shares differ."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.aside import Aside
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics
from dask_train.fitting.roles.trackers import means_of_all

BATCHES = [np.array([1.0, 2.0, 4.0, 8.0], "f4"), np.array([16.0, 3.0, 5.0], "f4"), np.array([7.0], "f4")]


def updated(metric, rows):
    """In all ways in which steps update a ``Mean``."""
    mean = keras.ops.mean(rows)
    metric["number"].update_state(mean)
    metric["python number"].update_state(mean, sample_weight=0.5)
    metric["by rows"].update_state(mean, sample_weight=keras.ops.shape(rows)[0])
    metric["vector"].update_state(rows)
    metric["function"].update_state(rows, 0 * rows)


def metrics():
    names = ("number", "python number", "by rows", "vector")
    function = keras.metrics.MeanMetricWrapper(lambda y, y_pred: keras.ops.mean(keras.ops.abs(y - y_pred)))
    return {name: keras.metrics.Mean(name=name) for name in names} | {"function": function}


@pytest.mark.parametrize("eagerly", [False, True])
def test_means_are_those_of_one_process(eagerly):
    def compiled(metric):
        step = tf.function(lambda rows: updated(metric, rows), [tf.TensorSpec((None,))], autograph=False)
        return (lambda rows: updated(metric, tf.constant(rows))) if eagerly else step

    one, workers, share = metrics(), (metrics(), metrics()), RowFraction()
    step = compiled(one)
    for rows in BATCHES:
        step(rows)
    with means_of_all(backend_of("tensorflow"), share):
        steps = [compiled(metric) for metric in workers]
        for rows in BATCHES:
            for part, worker in zip((rows[:1], rows[1:]), steps, strict=True):
                if len(part):
                    share.weight = len(part) / len(rows)
                    worker(part)
    for name in one:
        wanted = [float(variable.value) for variable in one[name].variables]
        found = np.sum([[float(v.value) for v in metric[name].variables] for metric in workers], axis=0)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=name)


def test_callbacks_count_for_themselves():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    mean, share = keras.metrics.Mean(), RowFraction()
    share.weight = 0.25
    with means_of_all(backend_of("tensorflow"), share), Aside(model, Metrics(model))():
        mean.update_state(3.0)
    assert float(mean.count.value) == 1.0
    assert mean.update_state(2.0) is None
    assert float(mean.count.value) == 2.0
