"""Training that was killed goes on from its checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt

pytestmark = pytest.mark.slow

ROWS, BATCH_SIZE, EPOCHS = 333, 20, 4  # 17 steps an epoch


def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 6))
    return da.from_array(x, chunks=(50, 6)), da.from_array((x.sum(1) > 0).astype("i8"), chunks=50)


def made():
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            layers.Input((6,)),
            layers.Dense(8, activation="tanh"),
            layers.BatchNormalization(),
            layers.Dropout(0.3, seed=4),
            layers.Dense(2),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Dying(keras.callbacks.Callback):
    """Kills its process, or the Dask worker that it belongs to, once, in the third epoch; counts what survives."""

    def __init__(self, mark=None, *, dask_worker=False):
        super().__init__()
        self.mark, self.dask_worker, self.epoch, self.batches = mark, dask_worker, 0, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.mark is not None and (self.epoch, batch) == (2, 11) and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getppid() if self.dask_worker else os.getpid(), signal.SIGKILL)
            time.sleep(60)  # it dies with its Dask worker


def fitted(client, callback, **arguments):
    model = made()
    settings = {"workers": 2, "batch_size": BATCH_SIZE, "epochs": EPOCHS, "seed": 5, "client": client, **arguments}
    return dt.fit(model, *rows(), callbacks=[callback], **settings)


@pytest.fixture(scope="module")
def undisturbed(train_client):
    callback = Dying()
    return fitted(train_client, callback), callback


def check_as(result, callback, undisturbed):
    wanted, counted = undisturbed
    for found, expected in zip(result.model.get_weights(), wanted.model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(result.history[name], values, rtol=1e-5, err_msg=name)
    assert result.epoch == list(range(EPOCHS))
    assert result.ledger.trained == ROWS * EPOCHS
    assert result.ledger.dropped == 0
    assert callback.batches == counted.batches, "it goes on with what it held"


@pytest.mark.parametrize("dask_worker", [False, True])
def test_a_killed_worker(client, tmp_path, undisturbed, dask_worker):
    callback = Dying(str(tmp_path / "died"), dask_worker=dask_worker)
    result = fitted(client, callback, checkpoint=dt.Checkpoint(tmp_path / "kept", every_steps=7))
    assert len(result.attempts) == 2
    assert result.ledger.repeated > 0
    check_as(result, callback, undisturbed)


def test_another_call_goes_on(client, tmp_path, undisturbed):
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=5)
    with pytest.raises(dt.RoleLostError):
        fitted(client, Dying(str(tmp_path / "died")), checkpoint=kept, recovery=None)
    callback = Dying()
    result = fitted(client, callback, checkpoint=kept, resume=True)
    assert len(result.attempts) == 1
    assert result.ledger.repeated == 0
    check_as(result, callback, undisturbed)
    with pytest.raises(dt.RoleFailedError, match="was made with batch_size=20, and this run has 21"):
        fitted(client, Dying(), checkpoint=kept, resume=True, batch_size=21)
