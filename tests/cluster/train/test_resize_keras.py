"""``run.resize`` of ``fit(recovery="in_place")``: workers of a Keras model join and leave while it is trained."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers
from loading import loaded

import dask_train as dt

resizing = loaded(__file__, "resizing")
WAIT_S = resizing.WAIT_S

BACKEND = keras.backend.backend()
ON_TENSORFLOW = BACKEND == "tensorflow"  # on which more is tried
pytestmark = [pytest.mark.backends, *([] if ON_TENSORFLOW else [pytest.mark.slow])]
further = pytest.mark.slow if ON_TENSORFLOW else pytest.mark.nightly

ROWS, BATCH_SIZE, EPOCHS = 189, 16, 4  # 12 batches; the last one has 13 rows
STEPS = 6  # of an epoch: every other one begins within the data
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8))
Y = (X @ _random.normal(size=(8, 3))).argmax(1)
NOW = -1
DTYPE = "float32" if BACKEND == "jax" else "float64"  # which JAX has only in a process that is told so
# Of weights: Keras computes losses in float32 on torch, so fixed numbers of workers differ as much from each other.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-14} if BACKEND == "tensorflow" else {"rtol": 2e-6, "atol": 2e-7}


@keras.saving.register_keras_serializable()
class Door(layers.Layer):
    """Passes inputs on. The first worker waits where a file is there, and workers end where one is.

    Parameters
    ----------
    folder
        ``closed 4`` holds the first worker up in the step after 4 others; ``kill 1 5`` ends the second one in the step
        after 5, once.
    """

    def __init__(self, folder, **kwargs):
        super().__init__(**kwargs)
        self.folder = str(folder)

    def get_config(self):
        return {**super().get_config(), "folder": self.folder}

    def call(self, x, training=False):
        if not training:
            return x

        def call(array):
            pass_by(self.folder)
            return np.zeros((), array.dtype)

        if BACKEND == "tensorflow":
            import tensorflow as tf

            return x + tf.ensure_shape(tf.numpy_function(call, [x], x.dtype), ())
        if BACKEND == "jax":
            from jax import ShapeDtypeStruct, lax
            from jax.experimental import io_callback

            return x + io_callback(call, ShapeDtypeStruct((), x.dtype), lax.stop_gradient(x), ordered=True)
        if x.device.type != "meta":  # a look at shapes
            pass_by(self.folder)
        return x


def pass_by(folder):
    if (where := resizing.whereabouts("fit_synchronously")) is None:
        return
    (rank, step), folder = where, Path(folder)
    deadline = time.monotonic() + WAIT_S
    while rank == 0 and (folder / f"closed {step}").exists() and time.monotonic() < deadline:
        (folder / f"waits {step}").touch()
        time.sleep(0.01)
    kill = folder / f"kill {rank} {step}"
    if kill.exists():
        kill.rename(folder / f"killed {rank} {step}")
        os.kill(os.getpid(), signal.SIGKILL)


def spread(y_true, y_pred):
    """A metric of the rows of all workers, which each of them counts."""
    return keras.ops.std(y_pred)


def halved_later(epoch, rate):
    return rate * 0.5 if epoch else rate


def fitted(client, folder, doors=(), callbacks=(), **settings):
    for step in doors:
        (folder / f"closed {step}").touch()
    keras.utils.set_random_seed(3)
    dtypes = {"dtype": DTYPE}
    model = keras.Sequential(
        [layers.Input((8,)), layers.Dense(16, "tanh", **dtypes), Door(folder, **dtypes), layers.Dense(3, **dtypes)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **dtypes)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy", spread])
    return dt.fit(
        model,
        da.from_array(X, chunks=(40, 8)),
        da.from_array(Y, chunks=40),
        validation_data=(X[:50], Y[:50]),
        validation_batch_size=24,
        callbacks=[
            keras.callbacks.LearningRateScheduler(halved_later),
            keras.callbacks.EarlyStopping("val_loss", mode="max", patience=EPOCHS - 1),  # it falls in each epoch
            *callbacks,
        ],
        client=client,
        **{"epochs": EPOCHS + 3, "steps_per_epoch": STEPS, "batch_size": BATCH_SIZE, "workers": 2, **settings},
        seed=5,
        verbose=0,
    )


@pytest.fixture(scope="module")
def fixed(train_client, tmp_path_factory):
    """The result of a run with a fixed number of workers."""
    return fitted(train_client, tmp_path_factory.mktemp("fixed"))


def check_same(result, wanted):
    for one, other in zip(result.model.get_weights(), wanted.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, **TOLERANCE)
    assert (result.epoch, result.epoch[-1]) == (wanted.epoch, EPOCHS - 1), "EarlyStopping has stopped it"
    assert result.history.keys() == wanted.history.keys()
    for name, values in wanted.history.items():  # metrics count in float32
        np.testing.assert_allclose(result.history[name], values, rtol=2e-6)
    ledger = result.ledger
    assert (ledger.trained, ledger.dropped, ledger.repeated) == (2 * ROWS, 0, 0)


def resized(run, folder, door, workers, wait_for, *kills):
    """Ask for so many workers while the first one waits at a door, which opens once it is told and some are to die."""
    wait_for((folder / f"waits {door}").exists, "the first worker waits", timeout_s=WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run.resize, workers)
        resizing.wait_until_told(run, workers, wait_for)
        for rank, step in kills:
            if step != NOW:
                (folder / f"kill {rank} {step}").touch()
                continue
            before = resizing.attempts(run)[rank]
            os.kill(resizing.pids(run)[rank], signal.SIGKILL)
            wait_for(lambda rank=rank, before=before: resizing.attempts(run)[rank] > before, "the loss is known")
        (folder / f"closed {door}").unlink()
        asking.result(WAIT_S)


def test_workers_join_and_leave_and_the_model_is_that_of_a_fixed_number(client, tmp_path, fixed, wait_for):
    within, at_end, last = 2, STEPS - 1, 2 * STEPS + 2
    run = fitted(client, tmp_path, (within, at_end, last), recovery="in_place", wait=False)
    resized(run, tmp_path, within, 3, wait_for)
    resized(run, tmp_path, at_end, 4, wait_for)
    resized(run, tmp_path, last, 2, wait_for)
    result = run.result()
    check_same(result, fixed)
    ranks = {(line.rank, line.epoch) for line in result.ledger.lines}
    assert {rank for rank, _ in ranks} == {0, 1, 2, 3}
    assert (len(result.attempts), result.notices) == (1, [])


@further
@pytest.mark.parametrize(
    "kills",
    [[(1, NOW), (2, NOW)], *(pytest.param(kills, marks=pytest.mark.nightly) for kills in ([(0, 2)], [(0, 3), (3, 3)]))],
)
def test_workers_that_are_lost_while_others_join_are_replaced(client, tmp_path, fixed, wait_for, kills):
    run = fitted(client, tmp_path, [2], recovery="in_place", wait=False)
    resized(run, tmp_path, 2, 4, wait_for, *kills)
    result = run.result()
    assert len(result.attempts) == 1 + len(kills), [attempt.reason for attempt in result.attempts]
    check_same(result, fixed)


@further
@pytest.mark.parametrize("kill", [(0, STEPS), pytest.param((2, NOW), marks=pytest.mark.nightly)])
def test_workers_that_are_lost_while_others_leave_are_replaced(client, tmp_path, fixed, wait_for, kill):
    first, last = 1, STEPS - 1  # the last step of an epoch
    saving = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True)
    run = fitted(client, tmp_path, [first, last], [saving], recovery="in_place", wait=False)
    resized(run, tmp_path, first, 3, wait_for)
    resized(run, tmp_path, last, 2, wait_for, kill)
    result = run.result()
    assert len(result.attempts) == 2, [attempt.reason for attempt in result.attempts]
    check_same(result, fixed)
    saved = sorted(path.name for path in tmp_path.glob("*.h5"))
    assert saved == [f"{epoch}.weights.h5" for epoch in range(1, EPOCHS + 1)]
