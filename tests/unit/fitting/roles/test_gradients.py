"""Gradients of a step that runs eagerly, of which a worker may lack some."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.gradients import RowFraction, _Summing

ONES = tf.ones((3, 2))
SLICES = tf.IndexedSlices(tf.constant([[8.0, 8.0]]), tf.constant([2], tf.int64), tf.constant([3, 2], tf.int64))


@pytest.fixture
def summed(on_each_rank):
    """What optimizers see on each of two workers, by the gradients of each; or an error."""

    def called(gradients, weights=(0.75, 0.25)):
        def function(rank, replicas):
            share, seen = RowFraction(), []
            share.weight = weights[rank]
            variables = [keras.Variable(np.zeros((3, 2), "float32")) for _ in gradients[rank]]
            try:
                _Summing(replicas, backend_of("tensorflow"), share)(gradients[rank], variables, seen.extend)
            except ValueError as error:
                return str(error)
            return [None if one is None else tf.convert_to_tensor(one).numpy().tolist() for one in seen]

        return on_each_rank(function, 2)

    return called


def test_a_gradient_that_only_some_workers_have_is_zeros_on_the_others(summed):
    ones, halves = ONES.numpy().tolist(), (0.5 * ONES).numpy().tolist()
    lacking = [[ONES, None, 2 / 3 * ONES, None], [ONES, 4 * ONES, None, None]]
    assert summed(lacking) == [[ones, ones, pytest.approx(np.array(halves)), None]] * 2


def test_gradients_of_a_worker_without_rows_weigh_nothing(summed):
    looked_up = tf.convert_to_tensor(SLICES).numpy().tolist()
    assert summed([[ONES, SLICES], [9 * ONES, SLICES]], weights=(1.0, 0.0)) == [[ONES.numpy().tolist(), looked_up]] * 2


def test_gradients_of_two_kinds_are_refused(summed):
    for message in summed([[ONES], [SLICES]]):
        assert "is sparse in float32 on one worker and dense in float32 on another one" in message
