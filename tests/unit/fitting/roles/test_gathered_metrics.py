"""Metrics count a worker's own rows; rows of all workers, which each of them has, are refused."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from dask_train.fitting.backends import backend_of
from dask_train.fitting.backends.tensorflow_losses import of_all
from dask_train.fitting.roles.aside import with_all_rows
from dask_train.fitting.roles.global_batch import gathered_rows_uncounted
from dask_train.fitting.roles.gradients import RowFraction


class Own(keras.metrics.Metric):
    def update_state(self, values):
        """Count nothing."""

    def result(self):
        return 0.0


METRICS = [keras.metrics.Mean, keras.metrics.Sum, Own]


@pytest.fixture
def share():
    """Three rows of seven, gathered in the step in hand."""
    found = RowFraction()
    found.weight, found.rows, found.global_rows = 3 / 7, 3, 7
    found.note_gathered()
    with gathered_rows_uncounted(backend_of("tensorflow"), found):
        yield found


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rows", [7, 14])
def test_rows_of_all_workers_are_refused(share, metric, rows):
    found = metric(name="seen")
    with pytest.raises(ValueError, match=r"Metric 'seen' is updated with rows of dt\.keras\.global_batch"):
        found.update_state(tf.zeros((rows,)))
    with with_all_rows():
        found.update_state(tf.zeros((rows,)))  # of a compiled metric, which is given them
    share.weight = 1.0  # the next batch, of which nothing is gathered yet
    found.update_state(tf.zeros((rows,)))


@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_the_batch_are_counted(share, metric):
    metric().update_state(tf.zeros((3,)))
    share.rows = 7
    metric().update_state(tf.zeros((7,)))


def test_a_number_counts_in_a_mean_alone(share):
    keras.metrics.Mean().update_state(tf.constant(1.0))
    with pytest.raises(ValueError, match="Metric 'total' is a sum of numbers that come after"):
        keras.metrics.Sum(name="total").update_state(tf.constant(1.0))


@pytest.mark.parametrize(
    ("update", "is_refused"),
    [
        (lambda seen, own: seen.update_state(of_all(own)), True),
        (lambda seen, own: seen.update_state(tf.square(of_all(own)) + 1.0), True),
        (lambda seen, own: seen.update_state(own), False),
        (lambda seen, own: seen.update_state(own - tf.reduce_mean(of_all(own))), False),
        (lambda seen, own: seen.update_state(tf.reduce_mean(of_all(own))), False),
    ],
    ids=["all", "of all", "own", "own beside all", "a number"],
)
def test_a_graph_tells_them(share, update, is_refused):
    seen = keras.metrics.Mean()

    @tf.function(input_signature=[tf.TensorSpec((None,))], autograph=False)
    def step(own):
        update(seen, own)

    if is_refused:
        with pytest.raises(ValueError, match="is updated with rows"):
            step.get_concrete_function()
    else:
        step.get_concrete_function()


def test_classes_are_as_they_were_afterwards():
    before = [vars(metric)["update_state"] for metric in METRICS]
    with gathered_rows_uncounted(backend_of("tensorflow"), RowFraction()):
        assert [vars(metric)["update_state"] for metric in METRICS] != before
    assert [vars(metric)["update_state"] for metric in METRICS] == before
