"""The training loop of a Keras model: checkpoints of other models, and whose history it is."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt
from dask_train.errors import CheckpointError
from dask_train.fitting.roles.loop import KerasLoop
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.sync_point import Position

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(12, 3)).astype("f4"), RANDOM.normal(size=(12, 1)).astype("f4")


def made(**compiled):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((3,)),
            layers.Dense(2, "tanh"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **compiled)
    return model


def fitted(model, **settings):
    return dt.fit(model, X, Y, **{"batch_size": 4, "seed": 1, "epochs": 2, "workers": 0, "verbose": 0, **settings})


def test_a_checkpoint_of_another_kind_of_model_is_refused(pool, tmp_path, monkeypatch):
    fitted(made(), checkpoint=tmp_path / "kept")
    opened = FitCheckpoint.load

    def of_trees(folder):
        kept = opened(folder)
        object.__setattr__(kept, "configuration", {"trees": 3})
        return kept

    monkeypatch.setattr(FitCheckpoint, "load", of_trees)
    with pytest.raises(CheckpointError, match="The checkpoint is of no Keras model"):
        fitted(made(), checkpoint=tmp_path / "kept", resume=True)


def test_a_history_of_the_users_own_goes_on_as_in_keras(pool, tmp_path):
    def model():
        return made(run_eagerly=True)  # without tracing, which would be most of what this takes

    ours, theirs = keras.callbacks.History(), keras.callbacks.History()
    one = model()
    for _ in range(2):
        fitted(one, callbacks=[ours])
        model().fit(X, Y, epochs=2, batch_size=4, callbacks=[theirs], verbose=0)
    assert (len(ours.history["loss"]), ours.epoch) == (len(theirs.history["loss"]), theirs.epoch) == (4, [0, 1])
    resumed = keras.callbacks.History()
    fitted(model(), checkpoint=tmp_path, callbacks=[keras.callbacks.History()])
    result = fitted(model(), checkpoint=tmp_path, resume=True, epochs=3, callbacks=[resumed])
    assert resumed.epoch == result.epoch == [0, 1, 2]


class Stopping(keras.callbacks.Callback):
    """Stops training at the end of the second epoch; or ``within`` it, once."""

    def __init__(self, patience, within=False):
        super().__init__()
        self.patience, self.within, self.epoch = patience, within, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.within and (self.epoch, batch) == (1, 1):
            self.within, self.model.stop_training = False, True

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 >= self.patience:
            self.model.stop_training = True


def test_training_that_callbacks_have_ended_is_over_until_their_arguments_change(pool, tmp_path):
    settings = {"checkpoint": tmp_path, "epochs": 5}
    ended = fitted(made(), callbacks=[Stopping(2)], **settings)
    again = fitted(made(), callbacks=[Stopping(2)], resume=True, **settings)
    assert ended.epoch == again.epoch == [0, 1]
    for one, other in zip(ended.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.model.stop_training
    more = fitted(made(), callbacks=[Stopping(3)], resume=True, **settings)
    assert more.epoch == [0, 1, 2]
    assert fitted(made(), callbacks=[], resume=True, **settings).epoch == [0, 1, 2, 3, 4]


def test_training_that_was_stopped_within_an_epoch_continues(pool, tmp_path):
    settings = {"checkpoint": tmp_path, "epochs": 3, "resume": True}
    fitted(made(), callbacks=[Stopping(9, within=True)], **settings)
    continued = fitted(made(), callbacks=[Stopping(9, within=True)], **settings)
    assert (continued.epoch, int(continued.model.optimizer.iterations)) == ([0, 1, 2], 9)


@pytest.mark.parametrize(
    ("several", "size", "batch", "first", "left"),
    [(1, 9, 4, 3, 1), (1, 9, 9, 8, 1), (3, 9, 4, 3, 3), (3, 9, 6, 3, 1), (3, 8, 7, 6, 2), (3, 8, 8, 6, 1)],
)
def test_a_successor_enters_keras_call_behind_its_step(several, size, batch, first, left):
    """So many steps are left of the call, with the one that the lost worker has taken."""
    epochs = Epochs(size, None, several)
    loop = SimpleNamespace(position=Position(0, batch, batch), _epochs=epochs, _behind_step=True)
    loop.first_of_call = KerasLoop.first_of_call.fget(loop)
    assert (loop.first_of_call, KerasLoop.num_in_call.fget(loop)) == (first, left)
    loop._behind_step = False
    assert KerasLoop.first_of_call.fget(loop) == batch
