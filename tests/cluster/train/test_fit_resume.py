"""Training that was killed goes on from its checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import keras
import numpy as np
import pytest
from dask_workers import own_dask_worker
from keras import layers
from loading import loaded

import dask_train as dt

steps = loaded(__file__, "contrastive_steps")

pytestmark = pytest.mark.slow

ROWS, BATCH_SIZE, EPOCHS = 333, 20, 4  # 17 steps an epoch


def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 6))
    return da.from_array(x, chunks=(50, 6)), da.from_array((x.sum(1) > 0).astype("i8"), chunks=50)


def made(optimizer=keras.optimizers.Adam, rate=0.02):
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
        optimizer(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Dying(keras.callbacks.Callback):
    """Kills its process, or the Dask worker that it belongs to, once, in the third epoch; counts what survives.

    Or ``stops`` training within the second one.
    """

    def __init__(self, mark=None, *, dask_worker=False, stops=False):
        super().__init__()
        self.mark, self.dask_worker, self.epoch, self.batches, self.stops = mark, dask_worker, 0, 0, stops

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.stops and (self.epoch, batch) == (1, 5):
            self.stops, self.model.stop_training = False, True
        if self.mark is not None and (self.epoch, batch) == (2, 11) and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(own_dask_worker() if self.dask_worker else os.getpid(), signal.SIGKILL)
            time.sleep(60)  # it dies with its Dask worker


def fitted(client, callback, model=None, **arguments):
    model = model or made()
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


def test_what_a_callback_has_stopped_within_an_epoch(client, tmp_path, undisturbed):
    """The checkpoint is as it was between two steps, before the epoch was cut short: moving averages are each one's."""
    stopped = fitted(client, Dying(stops=True), checkpoint=tmp_path)
    assert stopped.epoch == [0, 1]
    assert int(stopped.model.optimizer.iterations) == 17 + 6
    callback = Dying()
    check_as(fitted(client, callback, checkpoint=tmp_path, resume=True), callback, undisturbed)


def test_the_best_model_is_that_of_training_without_a_stop(client, tmp_path):
    values = da.from_array(np.random.default_rng(1).normal(size=(60, 6)), chunks=30)
    settings = {"validation_data": (values, (values.sum(1) > 0).astype("i8")), "epochs": 6}

    def kept(name):
        return dt.Checkpoint(tmp_path / name, every_steps=5, keep=1, best="val_accuracy", restore_best=True)

    class Seen(Dying):
        def on_epoch_end(self, epoch, logs=None):
            self.weights = [*getattr(self, "weights", []), self.model.get_weights()]

    seen = Seen()
    whole = fitted(client, seen, made(rate=0.3), checkpoint=kept("whole"), **settings)
    scores = whole.history["val_accuracy"]
    assert whole.best_epoch == int(np.argmax(scores))
    assert len(scores) == 6
    for found, expected in zip(whole.model.get_weights(), seen.weights[whole.best_epoch], strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(dt.RoleLostError):
        fitted(client, Dying(str(tmp_path / "died")), made(rate=0.3), checkpoint=kept("cut"), recovery=None, **settings)
    result = fitted(client, Dying(), made(rate=0.3), checkpoint=kept("cut"), resume=True, **settings)
    assert (result.best_epoch, result.history["val_accuracy"]) == (whole.best_epoch, scores)
    for found, expected in zip(result.model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    again = fitted(client, Dying(), made(rate=0.3), checkpoint=kept("cut"), resume=True, **settings)
    assert (again.best_epoch, len(again.history["loss"])) == (whole.best_epoch, 6)
    names = {entry.stem[:19] for entry in (tmp_path / "cut").glob("checkpoint-*")}
    assert len(names) == (1 if whole.best_epoch == 5 else 2), "the last and the best"
    with pytest.raises(dt.RoleFailedError, match="known by 'accuracies', and after an epoch there are loss, accuracy"):
        fitted(client, Dying(), checkpoint=dt.Checkpoint(tmp_path / "no", best="accuracies"))


def test_another_call_goes_on(client, tmp_path, undisturbed):
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=5)
    with pytest.raises(dt.RoleLostError):
        fitted(client, Dying(str(tmp_path / "died")), checkpoint=kept, recovery=None)
    callback = Dying()
    result = fitted(client, callback, checkpoint=kept, resume=True)
    assert len(result.attempts) == 1
    assert result.ledger.repeated == 0
    check_as(result, callback, undisturbed)
    with pytest.raises(dt.RoleFailedError, match=r"optimizer was Adam, and is Nadam; .*learning rate was 0\.02, and"):
        fitted(client, Dying(), made(keras.optimizers.Nadam, 0.01), checkpoint=kept, resume=True)
    newest = max((tmp_path / "kept").glob("*/arrays.npz"))
    newest.write_bytes(newest.read_bytes()[:-100])
    result = fitted(client, Dying(), made(rate=0.01), checkpoint=kept, resume="new_learning_rate")
    assert float(result.model.optimizer.learning_rate) == pytest.approx(0.01)
    (notice,) = result.notices
    assert re.search(r"is damaged \(of checkpoint-\d+.*, its file arrays.npz has \d+ of \d+ bytes\)", notice)


@pytest.mark.nightly
def test_a_checkpoint_goes_from_backend_to_backend(client, tmp_path):
    """From TensorFlow to torch, to JAX, and back: one epoch on each, as one process trains them all.

    By two workers on TensorFlow and by one on the others.
    """
    found = importlib.util.spec_from_file_location("any_backend", Path(__file__).with_name("any_backend.py"))
    any_backend = importlib.util.module_from_spec(found)
    found.loader.exec_module(any_backend)
    model = any_backend.made()
    wanted = model.fit(*any_backend.columns(), any_backend.BATCH_SIZE, epochs=4, shuffle=False, verbose=0).history

    def check(told, epochs, backend):
        assert told.pop("backend") == backend
        for name, values in wanted.items():
            np.testing.assert_allclose(told[name], values[:epochs], rtol=1e-4, err_msg=f"{name} on {backend}")

    check(any_backend.go_on(tmp_path, 1, workers=2), 1, "tensorflow")
    for epochs, backend in ((2, "torch"), (3, "jax")):
        command = [sys.executable, any_backend.__file__, client.scheduler.address, tmp_path, str(epochs)]
        environment = {**os.environ, "KERAS_BACKEND": backend}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
        assert ended.returncode == 0, ended.stderr
        check(json.loads(ended.stdout.splitlines()[-1]), epochs, backend)
    check(any_backend.go_on(tmp_path, 4, workers=2), 4, "tensorflow")
    with np.load(tmp_path / "weights.npz") as weights:
        for place, value in enumerate(model.get_weights()):
            np.testing.assert_allclose(weights[f"arr_{place}"], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("workers", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_queue_of_gathered_rows_goes_on_with_another_number_of_workers(client, tmp_path, workers):
    """In the second epoch, whose rows it has a part of."""
    x = np.random.default_rng(0).normal(size=(ROWS, 8))
    models = []
    for number, callbacks in ((1, []), (2, [Dying(stops=True)]), (workers, [])):
        keras.utils.set_random_seed(3)
        models.append(steps.Remembers.made())
        kept = {} if number == 1 and not models[1:] else {"checkpoint": tmp_path, "resume": not callbacks}
        settings = {"batch_size": BATCH_SIZE, "epochs": 2, "seed": 5, "verbose": 0, "client": client, **kept}
        result = dt.fit(models[-1], x, workers=number, callbacks=callbacks, **settings)
    assert result.ledger.repeated == 0
    for one, same in zip(models[2].weights, models[0].weights, strict=True):
        np.testing.assert_allclose(one, same, atol=1e-5)
    assert not np.allclose(models[1].queue, models[0].queue, atol=1e-2)
