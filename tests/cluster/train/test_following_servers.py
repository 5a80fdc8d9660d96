"""``fit(ps=1, workers=(1, 2))``: workers of an asynchronous run join and leave, and each row counts once."""

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
from distributed import Client
from keras import layers
from loading import loaded

import dask_train as dt
from dask_train.run.state import Phase

resizing = loaded(__file__, "resizing")
WAIT_S = resizing.WAIT_S

ROWS, BATCH_SIZE, EPOCHS = 205, 10, 4
STEPS = -(-ROWS // BATCH_SIZE)  # of an epoch; the last batch has five rows


@keras.saving.register_keras_serializable()
class Doors(layers.Layer):
    """Passes inputs on. ``closed 1 20`` in the folder holds worker 1 up in the step after 20; ``kill 1 20`` ends it."""

    def __init__(self, folder, **kwargs):
        super().__init__(**kwargs)
        self.folder = str(folder)

    def get_config(self):
        return {**super().get_config(), "folder": self.folder}

    def call(self, x, training=False):
        if not training:
            return x
        import tensorflow as tf

        def call(array):
            pass_by(Path(self.folder))
            return np.zeros((), array.dtype)

        return x + tf.ensure_shape(tf.numpy_function(call, [x], x.dtype), ())


def pass_by(folder):
    if (where := resizing.whereabouts("fit_asynchronously")) is None:
        return
    rank, step = where
    deadline = time.monotonic() + WAIT_S
    while (folder / f"closed {rank} {step}").exists() and time.monotonic() < deadline:
        (folder / f"waits {rank} {step}").touch()
        time.sleep(0.01)
    if (kill := folder / f"kill {rank} {step}").exists():
        kill.rename(folder / f"killed {rank} {step}")
        os.kill(os.getpid(), signal.SIGKILL)


@keras.saving.register_keras_serializable()
class Rows(keras.metrics.Metric):
    """Counts rows."""

    def __init__(self, name="rows", **kwargs):
        super().__init__(name=name, **kwargs)
        self.count = self.add_variable((), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(keras.ops.cast(keras.ops.shape(y_true)[0], "float32"))

    def result(self):
        return self.count + 0.0


def fitted(client, folder, doors=(), **settings):
    for door in doors:
        (folder / f"closed {door}").touch()
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    y = (x.sum(1) > 0).astype("i8")
    model = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8, "tanh"), layers.BatchNormalization(), Doors(folder), layers.Dense(2)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy", Rows()])
    shared = {"ps": 1, "epochs": EPOCHS, "batch_size": BATCH_SIZE, "client": client}
    data = da.from_array(x, chunks=(40, 6)), da.from_array(y, chunks=40)
    return dt.fit(model, *data, **{**shared, **settings})


def check(result, ranks):
    """Check that each row was trained once per epoch, by the ledger and by what servers have counted."""
    assert result.history["rows"] == [ROWS] * EPOCHS
    by_epoch: dict[int, int] = {}
    for line in result.ledger.lines:
        by_epoch[line.epoch] = by_epoch.get(line.epoch, 0) + line.trained
    assert by_epoch == dict.fromkeys(range(EPOCHS), ROWS)
    assert result.ledger.dropped == 0
    assert {line.rank for line in result.ledger.lines if line.trained} == set(ranks)


def waits(folder, door, wait_for):
    wait_for((folder / f"waits {door}").exists, f"a worker waits at {door}", timeout_s=WAIT_S)


def opened(folder, *doors):
    for door in doors:
        (folder / f"closed {door}").unlink()


def test_a_run_grows_and_shrinks_with_its_cluster_and_each_row_counts_once(make_cluster, tmp_path, wait_for):
    doors = ("0 3", "0 9", "1 20")
    with Client(make_cluster(n_workers=1)) as client:
        run = fitted(client, tmp_path, doors, workers=(1, 2), wait=False)
        waits(tmp_path, "0 3", wait_for)
        client.cluster.scale(2)
        resizing.wait_until_told(run, 2, wait_for)
        opened(tmp_path, "0 3")
        for door in doors[1:]:
            waits(tmp_path, door, wait_for)
        client.cluster.scale(1)
        resizing.wait_until_told(run, 1, wait_for)
        opened(tmp_path, *doors[1:])
        result = run.result()
    check(result, {0, 1})
    of_second = {line.epoch: line.trained for line in result.ledger.lines if line.rank == 1}
    assert 0 < sum(of_second.values()) < 2 * ROWS, "it joins in the first epoch, and leaves by the second"
    assert result.notices == []


def resized(run, folder, doors, workers, wait_for):
    """Change the number of workers while they wait at doors, which are opened as soon as the first one is told."""
    for door in doors:
        waits(folder, door, wait_for)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run.resize, workers)
        resizing.wait_until_told(run, workers, wait_for)
        opened(folder, *doors)
        asked.result(WAIT_S)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["0 8", *(pytest.param(lost, marks=pytest.mark.nightly) for lost in ("1 8", "2 8"))])
def test_a_worker_that_is_lost_after_others_have_joined_or_left_is_replaced(client, tmp_path, wait_for, lost):
    doors, later = ("0 3", "1 6"), ("0 20", "1 20", "2 20")
    (tmp_path / f"kill {lost}").touch()
    run = fitted(client, tmp_path, (*doors, *later), workers=2, wait=False)
    waits(tmp_path, doors[1], wait_for)
    resized(run, tmp_path, doors[:1], 3, wait_for)  # from step 8 on, as the second one is in the step after 6
    opened(tmp_path, doors[1])
    resized(run, tmp_path, later, 1, wait_for)
    result = run.result()
    check(result, {0, 1, 2})
    assert (tmp_path / f"killed {lost}").exists()
    assert [set(attempt.places) for attempt in result.attempts[1:]] == [{f"worker/{lost[0]}"}]


@pytest.mark.slow
def test_all_start_again_in_the_number_that_the_run_has_by_then(client, tmp_path, wait_for):
    doors = ("0 3", "1 6")
    run = fitted(client, tmp_path, (*doors, "0 30"), workers=2, checkpoint=str(tmp_path / "kept"), wait=False)
    resized(run, tmp_path, doors, 1, wait_for)
    waits(tmp_path, "0 30", wait_for)
    (server,) = [role for role in run.status()["roles"] if role["role"] == "ps"]
    os.kill(server["pid"], signal.SIGKILL)
    opened(tmp_path, "0 30")
    result = run.result()
    check(result, {0, 1})
    assert set(result.attempts[1].places) == {"ps/0", "worker/0"}


@pytest.mark.slow
def test_more_workers_resume_from_a_checkpoint_and_fewer_do_not(client, tmp_path, wait_for):
    kept = {"checkpoint": str(tmp_path / "kept"), "client": client, "folder": tmp_path}
    doors = ("0 30", "1 15")
    run = fitted(doors=doors, workers=2, wait=False, **kept)
    for door in doors:
        waits(tmp_path, door, wait_for)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(run.stop)
        wait_for(lambda: run._driver.state.phase is Phase.STOPPING, "it is to stop", timeout_s=WAIT_S)
        opened(tmp_path, *doors)
        stopped.result(WAIT_S)
    with pytest.raises(dt.RoleFailedError, match="made with 2 workers, and this run has 1"):
        fitted(workers=1, resume=True, **kept)
    check(fitted(workers=3, resume=True, **kept), {0, 1, 2})


@pytest.mark.slow
def test_those_that_were_to_leave_end_their_batches_and_join_again_after_a_restart(client, tmp_path, wait_for):
    doors, kept = ("0 3", "1 6", "2 6"), tmp_path / "kept"
    checkpoint = dt.Checkpoint(str(kept), every_steps=10)
    run = fitted(client, tmp_path, (*doors, "0 30"), workers=3, checkpoint=checkpoint, wait=False)
    for door in doors:
        waits(tmp_path, door, wait_for)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run.resize, 1)
        resizing.wait_until_told(run, 1, wait_for)
        opened(tmp_path, "0 3")
        waits(tmp_path, "0 30", wait_for)
        wait_for(lambda: any(kept.glob("checkpoint-0000000[23]*.json")), "one is kept", timeout_s=WAIT_S)
        (server,) = [role for role in run.status()["roles"] if role["role"] == "ps"]
        os.kill(server["pid"], signal.SIGKILL)
        opened(tmp_path, *doors[1:], "0 30")
        with pytest.raises(dt.PlacementError, match="continues with 3 workers, and not with 1"):
            asked.result(WAIT_S)
    result = run.result()
    check(result, {0, 1, 2})
    of_third = [line.trained for line in result.ledger.lines if line.rank == 2]
    assert len(of_third) == EPOCHS
    assert 0 < of_third[0] < of_third[1], "it had no share of most batches of the first epoch"
