"""Epochs have the steps that Keras' own ``fit`` takes on arrays."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.trainers.common.epochs import Epochs

NUM_BATCHES, NUM_EPOCHS = 7, 7


class Counting(keras.callbacks.Callback):
    """How many steps the optimizer has taken in each epoch, and which batches callbacks hear of."""

    def __init__(self):
        super().__init__()
        self.sizes, self.calls = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append([])
        self.began = int(self.model.optimizer.iterations)

    def on_train_batch_begin(self, batch, logs=None):
        self.calls[-1].append(batch)

    def on_epoch_end(self, epoch, logs=None):
        self.sizes.append(int(self.model.optimizer.iterations) - self.began)


def counted_by_keras(steps_per_epoch, steps_per_execution, initial_epoch):
    """What Keras does, and whether it warns."""
    model = keras.Sequential([layers.Input((1,)), layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    x, counting = np.ones((NUM_BATCHES * 2, 1)), Counting()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            x,
            x,
            batch_size=2,
            steps_per_epoch=steps_per_epoch,
            initial_epoch=initial_epoch,
            epochs=NUM_EPOCHS,
            callbacks=[counting],
            verbose=0,
        )
    return counting, any("ran out of data" in str(each.message) for each in caught)


@pytest.mark.parametrize("initial_epoch", [0, 3])
@pytest.mark.parametrize(
    ("steps_per_epoch", "steps_per_execution"),
    [(None, 1), (None, 4), (4, 1), (9, 1), (7, 1), (4, 3), (9, 4), (3, 2), (1, 3), (2, 9)],
)
def test_epochs_are_those_of_keras(steps_per_epoch, steps_per_execution, initial_epoch):
    epochs = Epochs(NUM_BATCHES, steps_per_epoch, steps_per_execution, initial_epoch)
    counting, warned = counted_by_keras(steps_per_epoch, steps_per_execution, initial_epoch)
    numbers = range(initial_epoch, NUM_EPOCHS)
    assert [epochs.size(epoch) for epoch in numbers] == counting.sizes
    for epoch, calls in zip(numbers, counting.calls, strict=True):
        batch, found = 0, []
        while batch < epochs.size(epoch):
            found.append(batch)
            batch += epochs.in_call(epoch, batch)
        assert found == calls
    assert (epochs.warning() is not None) == warned


@pytest.mark.parametrize(("steps_per_epoch", "steps_per_execution"), [(None, 1), (4, 1), (4, 3), (9, 2)])
def test_a_position_has_one_place(steps_per_epoch, steps_per_execution):
    epochs = Epochs(NUM_BATCHES, steps_per_epoch, steps_per_execution, 2)
    position = epochs.first(2)
    assert position == 2 * NUM_BATCHES
    assert epochs.begins_pass(2)
    for epoch in range(2, 9):
        for batch in range(epochs.size(epoch)):
            assert epochs.place(position) == (epoch, batch)
            position += 1
        assert epochs.begins_pass(epoch + 1) == (position % NUM_BATCHES == 0)
