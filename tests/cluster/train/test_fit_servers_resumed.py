"""Training through parameter servers that is stopped, or begun again: all of it goes on, and each row counts once."""

from __future__ import annotations

import os
import signal

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt

pytestmark = pytest.mark.slow

ROWS, BATCH_SIZE = 601, 20
STEPS = -(-ROWS // BATCH_SIZE)  # the last batch has one row, so one worker of two has none of it


def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return da.from_array(x, chunks=(130, 6)), da.from_array((x.sum(1) > 0).astype("i8"), chunks=130)


class Slow(layers.Layer):
    """Takes its time, so that there is some to kill in."""

    def call(self, inputs):
        import tensorflow as tf

        def wait(values):
            import time

            time.sleep(0.02)
            return values

        outputs = tf.numpy_function(wait, [inputs], inputs.dtype)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, shape):
        return shape


def made(*, slow=False):
    keras.utils.set_random_seed(3)
    inputs = layers.Input((6,))
    hidden = layers.BatchNormalization()(layers.Dense(8, activation="tanh")(inputs))
    model = keras.Model(inputs, layers.Dense(2)(Slow()(hidden) if slow else hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


class Counting(keras.callbacks.Callback):
    """Counts the epochs that end, and the batches of each."""

    def __init__(self):
        super().__init__()
        self.num_epochs, self.first_batches = 0, []

    def on_epoch_begin(self, epoch, logs=None):
        self.first_batches = [*self.first_batches, None]

    def on_train_batch_end(self, batch, logs=None):
        if self.first_batches[-1] is None:
            self.first_batches = [*self.first_batches[:-1], batch]

    def on_epoch_end(self, epoch, logs=None):
        self.num_epochs = self.num_epochs + 1


def fitted(client, model, epochs, **settings):
    shared = {"workers": 2, "ps": 1, "batch_size": BATCH_SIZE, "client": client}
    return dt.fit(model, *rows(), epochs=epochs, **{**shared, **settings})


def check(result, epochs):
    """Check that all rows of these epochs count once, also those of the run before."""
    assert result.epoch == list(range(epochs))
    assert {name: len(values) for name, values in result.history.items()} == {"accuracy": epochs, "loss": epochs}
    # Every worker has pushed once for each batch that it had rows of.
    assert int(result.model.optimizer.iterations) == epochs * (2 * STEPS - 1)
    assert (result.ledger.trained, result.ledger.dropped) == (epochs * ROWS, 0)


class Stopping(keras.callbacks.Callback):
    """Stops training within the second epoch."""

    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, 5):
            self.model.stop_training = True


def test_training_that_was_stopped_within_an_epoch_is_resumed_where_each_worker_was(client, tmp_path):
    stopped = fitted(client, made(), 4, checkpoint=tmp_path, callbacks=[Stopping()])
    assert stopped.epoch == [0, 1]
    counting = Counting()
    result = fitted(client, made(), 4, checkpoint=tmp_path, resume=True, callbacks=[counting])
    check(result, 4)
    assert counting.first_batches == [6, 0, 0], "it was kept where it was stopped, not at the end of the epoch before"


def test_a_run_that_had_ended_goes_on_with_more_epochs(client, tmp_path):
    """The other worker's last steps may be in no checkpoint; they are taken again."""
    fitted(client, made(), 2, checkpoint=tmp_path)
    result = fitted(client, made(), 3, checkpoint=tmp_path, resume=True)
    check(result, 3)
    with pytest.raises(dt.RoleFailedError, match="begun with initial_epoch=0, and this run has 1"):
        fitted(client, made(), 4, checkpoint=tmp_path, resume=True, initial_epoch=1)


def test_a_killed_first_worker_takes_nothing_of_an_earlier_run_along(client, until, tmp_path):
    """It is killed before an epoch of this run has ended."""
    fitted(client, made(slow=True), 2, checkpoint=tmp_path, callbacks=[Counting()])
    counting = Counting()
    run = fitted(client, made(slow=True), 4, checkpoint=tmp_path, resume=True, callbacks=[counting], wait=False)
    next(score for score in run.scores() if "step" in score)
    os.kill(until(run, 1)["worker", 0]["pid"], signal.SIGKILL)
    result = run.result()
    assert [set(attempt.places) for attempt in result.attempts[1:]] == [{"worker/0"}]
    check(result, 4)
    assert counting.num_epochs == 4
