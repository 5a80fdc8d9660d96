"""``fit(recovery="in_place")`` of Keras models: lost workers are replaced, and the others keep their processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers
from loading import loaded

import dask_train as dt

steps = loaded(__file__, "contrastive_steps")
BACKEND = keras.backend.backend()
pytestmark = pytest.mark.backends
further = pytest.mark.slow if BACKEND == "tensorflow" else pytest.mark.nightly  # what is tried on one backend first

ROWS, BATCH_SIZE, EPOCHS = 173, 16, 3  # 11 steps an epoch; the last batch has 13 rows
STEPS = -(-ROWS // BATCH_SIZE)
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8)).astype("f4")
Y = (X @ _random.normal(size=(8, 3))).argmax(1)


def own_rank():
    """Of the worker in whose step this is called, by whatever thread; None in the client, which tries models."""
    for top in sys._current_frames().values():
        frame = top
        while frame is not None:
            if frame.f_code.co_name == "fit_synchronously":
                return frame.f_locals["session"].rank
            frame = frame.f_back
    return None


@keras.saving.register_keras_serializable()
class Fated(layers.Layer):
    """Passes inputs on, and ends the processes of these workers when they come to a point for that time; each once.

    Parameters
    ----------
    folder
        Where is noted who was there, and who has ended.
    losses
        ``(rank, point, count)``; a count is of all calls that a process has made.
    """

    def __init__(self, folder, losses=(), **kwargs):
        super().__init__(**kwargs)
        self.folder, self.fates = folder, json.dumps(losses)

    def get_config(self):
        return {**super().get_config(), "folder": self.folder, "losses": json.loads(self.fates)}

    def call(self, x, training=False):
        looked_at = (self.folder, json.loads(self.fates), "training" if training else "validation")
        if is_rehearsed():  # steps are counted, and not what is tried before the first one
            return x
        if BACKEND != "torch":
            return in_step(partial(at, *looked_at), x)
        if x.device.type != "meta":  # a look at shapes
            at(*looked_at)
        return x


def is_rehearsed():
    from dask_train.fitting.roles import aside

    return aside.is_rehearsed()


def in_step(function, x):
    """Return ``x``, and call the function when a compiled step comes to this."""

    def call(array):
        function()
        return np.zeros((), array.dtype)

    if BACKEND == "jax":
        from jax import ShapeDtypeStruct, lax
        from jax.experimental import io_callback

        return x + io_callback(call, ShapeDtypeStruct((), x.dtype), lax.stop_gradient(x), ordered=True)
    import tensorflow as tf

    return x + tf.ensure_shape(tf.numpy_function(call, [x], x.dtype), ())


_counts: dict = {}


def at(folder, losses, point, count=0):
    if (rank := own_rank()) is None:
        return
    _counts[point] = count or _counts.get(point, 0) + 1
    (Path(folder) / f"{rank}-{os.getpid()}").touch()
    for loss in losses:
        mark = Path(folder) / "lost {} {} {}".format(*loss)
        if tuple(loss) == (rank, point, _counts[point]) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@keras.saving.register_keras_serializable()
class FatedAdam(keras.optimizers.Adam):
    """Ends processes when it has applied gradients."""

    def __init__(self, folder="", losses=(), **kwargs):
        super().__init__(**kwargs)
        self.folder, self.fates = folder, json.dumps(losses)

    def get_config(self):
        return {**super().get_config(), "folder": self.folder, "losses": json.loads(self.fates)}

    def apply(self, grads, trainable_variables=None):
        found = super().apply(grads, trainable_variables)
        looked_at = (self.folder, json.loads(self.fates), "optimizer")
        if BACKEND == "torch":
            at(*looked_at)
        else:
            in_step(partial(at, *looked_at), keras.ops.cast(self.iterations, "float32"))
        return found


class Noted(keras.callbacks.Callback):
    """Notes what it is called with, and sets learning rates in between."""

    def __init__(self, folder="", losses=()):
        super().__init__()
        self.folder, self.losses, self.seen = folder, losses, []

    def on_epoch_begin(self, epoch, logs=None):
        self.seen.append(("epoch", epoch))

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(("ended", epoch, round(logs["loss"], 5)))
        self.model.optimizer.learning_rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)) * 0.5
        at(self.folder, self.losses, "epoch end", epoch + 1)  # what callbacks count goes back to the client


def of(folder):
    """How many processes there were of each rank, and how many were lost."""
    names = [path.name for path in Path(folder).iterdir()]
    first = [name.split("-")[0] for name in names if name[0].isdigit()]
    return [first.count(str(rank)) for rank in range(max(3, *(1 + int(rank) for rank in first)))], sum(
        name.startswith("lost") for name in names
    )


def fitted(client, folder, losses=(), *, callbacks=(), data=None, **settings):
    folder.mkdir(exist_ok=True)
    keras.utils.set_random_seed(3)
    fate = {"folder": str(folder), "losses": losses}
    model = keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(16, "tanh"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            Fated(**fate),
            layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(FatedAdam(learning_rate=0.02, **fate), loss, metrics=["accuracy"])
    noted = Noted(**fate)
    settings = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "workers": 3, "seed": 5, "verbose": 0, **settings}
    settings = {"validation_data": (X[:50], Y[:50]), **settings}
    result = dt.fit(
        model,
        *(data or (da.from_array(X, chunks=(40, 8)), da.from_array(Y, chunks=40))),
        validation_batch_size=24,
        client=client,
        callbacks=[noted, *callbacks],
        **settings,
    )
    return result, noted.seen


@pytest.fixture(scope="module")
def undisturbed(train_client, tmp_path_factory):
    """The result of a run without a loss, and what its callback has seen."""
    return fitted(train_client, tmp_path_factory.mktemp("whole") / "fate")


def check_same(found, wanted):
    (result, seen), (other, also_seen) = found, wanted
    for one, same in zip(result.model.get_weights(), other.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)
    for one, same in zip(result.model.optimizer.variables, other.model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(same))
    for name, values in other.history.items():  # they are added up between reports, which come when they are due
        np.testing.assert_allclose(result.history[name], values, rtol=2e-6)
    assert (list(result.history), result.epoch) == (list(other.history), other.epoch)
    assert (result.ledger.trained, result.ledger.dropped) == (other.ledger.trained, other.ledger.dropped)
    assert (result.ledger.repeated, seen) == (0, also_seen)


MOMENTS = [
    ("training", 1),
    pytest.param(("training", STEPS + 5), marks=pytest.mark.nightly),
    ("optimizer", STEPS + 5),
    pytest.param(("training", STEPS + 1), marks=pytest.mark.nightly),
    ("validation", 4),
    pytest.param(("optimizer", STEPS * EPOCHS), marks=pytest.mark.nightly),
    pytest.param(("training", STEPS * EPOCHS), marks=pytest.mark.nightly),
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]} {moment[1]}")
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_lost_worker_is_replaced_and_the_others_keep_their_processes(client, tmp_path, undisturbed, rank, moment):
    folder = tmp_path / "fate"
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=3)
    found = fitted(client, folder, [(rank, *moment)], recovery="in_place", checkpoint=kept)
    assert len(found[0].attempts) == 2, [attempt.reason for attempt in found[0].attempts]
    assert of(folder) == ([1 + (each == rank) for each in range(3)], 1)
    check_same(found, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([(0, "training", 9), (1, "training", 9)], marks=further),
        [(1, "training", 9), (2, "optimizer", 9), (1, "training", 12)],
        pytest.param([(0, "epoch end", 1), (1, "validation", 3)], marks=further),
    ],
    ids=["two at once", "one after the other", "between epochs"],
)
def test_several_lost_workers_are_replaced(client, tmp_path, undisturbed, losses):
    folder, policy = tmp_path / "fate", dt.RecoveryPolicy(scope="in_place", max_restarts=5)
    found = fitted(client, folder, losses, recovery=policy)
    processes, num_lost = of(folder)
    assert num_lost == len(losses)
    assert processes == [1 + sum(rank == each for rank, *_ in losses) for each in range(3)]
    check_same(found, undisturbed)


class Unpicklable(keras.callbacks.Callback):
    """Holds what can't be pickled, from the beginning of training on."""

    def on_train_begin(self, logs=None):
        self.lock = threading.Lock()


@further
def test_all_start_again_where_a_callback_of_the_lost_worker_can_not_be_pickled(client, tmp_path, undisturbed):
    folder, kept = tmp_path / "fate", dt.Checkpoint(tmp_path / "kept", every_steps=3)
    losses = [(0, "training", STEPS + 5)]
    found = fitted(client, folder, losses, callbacks=[Unpicklable()], recovery="in_place", checkpoint=kept)
    assert any("callback Unpicklable holds can't be pickled" in notice for notice in found[0].notices)
    assert "not in its mirror" in found[0].attempts[1].reason
    assert of(folder) == ([2, 2, 2], 1), "the one that could not go on has trained nothing"
    for one, same in zip(found[0].model.get_weights(), undisturbed[0].model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)


@further
def test_a_callback_that_has_set_weights_sets_them_once(client, tmp_path):
    """Worker 0 is lost right after weights were set by its callback; and one that follows it, later on."""
    settings = {"callbacks": [keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)]}
    wanted = fitted(client, tmp_path / "whole", **settings)
    settings["callbacks"] = [keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)]
    found = fitted(client, tmp_path / "fate", [(0, "training", STEPS + 5)], recovery="in_place", **settings)
    assert of(tmp_path / "fate") == ([2, 1, 1], 1)
    check_same(found, wanted)


def remembering(client, folder, losses=(), **settings):
    """Train a model that keeps rows of all workers in a queue."""
    folder.mkdir()
    keras.utils.set_random_seed(3)
    parts = [Fated(str(folder), losses), layers.Dense(6, "tanh"), steps.Avoids(), layers.Dense(3)]
    model = keras.Sequential([layers.Input((8,)), *parts])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return dt.fit(model, X, Y, epochs=2, batch_size=BATCH_SIZE, workers=2, seed=5, verbose=0, client=client, **settings)


@further
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_queue_of_gathered_rows_and_its_place_are_handed_over(client, tmp_path, rank):
    wanted = remembering(client, tmp_path / "whole")
    found = remembering(client, tmp_path / "fate", [(rank, "training", STEPS + 5)], recovery="in_place")
    assert of(tmp_path / "fate") == ([1 + (rank == each) for each in range(2)] + [0], 1)
    assert (found.ledger.repeated, found.notices) == (0, [])
    for one, same in zip(found.model.variables, wanted.model.variables, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(same))
