"""What a model has learnt is kept when a run is stopped, and gone on with by another call, whatever ended the first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt

pytestmark = pytest.mark.slow

ROWS, BATCH_SIZE, EPOCHS = 333, 20, 6  # 17 steps an epoch


def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 6))
    return da.from_array(x, chunks=(50, 6)), da.from_array((x.sum(1) > 0).astype("i8"), chunks=50)


def made():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    return model


def fitted(client, callbacks=(), model=None, **arguments):
    settings = {"workers": 2, "batch_size": BATCH_SIZE, "epochs": EPOCHS, "seed": 5, **arguments}
    return dt.fit(model or made(), *rows(), callbacks=list(callbacks), client=client, **settings)


def accuracy_of(model):
    return model.evaluate(*map(np.asarray, rows()), verbose=0)[1]


class Signalling(keras.callbacks.Callback):
    """Sends a signal to a process in the middle of the third epoch."""

    def __init__(self, pid, number):
        super().__init__()
        self.pid, self.number, self.epoch = pid, number, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 11):
            os.kill(self.pid, self.number)


@pytest.mark.parametrize("servers", [{}, {"ps": 1, "scorer": 1}])
def test_ctrl_c_leaves_the_model_with_what_it_has_learnt(client, servers):
    model = made()
    before = accuracy_of(model)
    validation = {"validation_data": rows()} if servers else {}
    with pytest.raises(KeyboardInterrupt) as interrupt:
        fitted(client, [Signalling(os.getpid(), signal.SIGINT)], model, epochs=100_000, **servers, **validation)
    result = interrupt.value.result
    assert (result.model, result.stop_reason) == (model, "it was interrupted")
    assert len(result.history["loss"]) >= 2
    assert not hasattr(result, "results"), "what workers hand over is in the model"
    assert int(model.optimizer.iterations) > 2 * 17
    assert accuracy_of(model) > max(before, 0.85)


def test_a_run_that_is_stopped(client, until):
    model = made()
    run = fitted(client, model=model, epochs=100_000, wait=False)
    until(run, 40)
    run.stop()
    result = run.result()
    assert result.model is model
    assert result.stop_reason == "it was stopped"
    assert len(result.history["loss"]) >= 1
    assert int(model.optimizer.iterations) * BATCH_SIZE >= result.ledger.trained > 2 * ROWS
    assert accuracy_of(model) > 0.85


def test_a_run_that_is_stopped_before_it_has_begun(client, tmp_path):
    model = made()
    weights = model.get_weights()
    run = fitted(client, model=model, wait=False)
    run.stop()
    result = run.result()
    assert (result.model, result.history, result.epoch) == (model, {}, [])
    assert result.report(tmp_path / "run.html").exists()
    assert result.ledger.trained == 0
    for found, wanted in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture(scope="module")
def undisturbed(train_client):
    return fitted(train_client)


def check_as(result, undisturbed, **tolerance):
    for found, wanted in zip(result.model.get_weights(), undisturbed.model.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, **tolerance)
    for name, values in undisturbed.history.items():
        np.testing.assert_allclose(result.history[name], values, rtol=1e-3, err_msg=name)
    assert result.epoch == list(range(EPOCHS))
    assert result.ledger.trained == ROWS * EPOCHS


@pytest.mark.parametrize(
    "counts", [(2, 3), *(pytest.param(counts, marks=pytest.mark.nightly) for counts in ((1, 2), (2, 1)))]
)
def test_another_number_of_workers_goes_on(client, tmp_path, undisturbed, counts):
    place = f"file://{tmp_path}/kept"
    fitted(client, workers=counts[0], epochs=2, checkpoint=dt.Checkpoint(place, every_steps=20))
    result = fitted(client, workers=counts[1], checkpoint=place, resume=True)
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()), "a URL of files is a folder"
    assert result.ledger.repeated == 0
    check_as(result, undisturbed, rtol=1e-3, atol=1e-5)


def test_what_lies_in_one_process_is_no_place_for_checkpoints(client):
    with pytest.raises(ValueError, match="checkpoint is 'memory://kept', which lies in the memory of one process"):
        fitted(client, checkpoint="memory://kept")


PROGRAM = """
import importlib.util, os, signal, sys
import cloudpickle
from distributed import Client

spec = importlib.util.spec_from_file_location("going_on", {file!r})
module = importlib.util.module_from_spec(spec)
sys.modules["going_on"] = module
spec.loader.exec_module(module)
cloudpickle.register_pickle_by_value(module)
client = Client({address!r})
kept = module.dt.Checkpoint({place!r}, every_steps=7)
module.fitted(client, [module.Signalling(os.getpid(), signal.SIGKILL)], checkpoint=kept)
"""


def test_going_on_after_the_client_was_killed(client, tmp_path, undisturbed, wait_for, state):
    place = str(tmp_path / "kept")
    program = PROGRAM.format(file=__file__, address=client.scheduler.address, place=place)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert list(Path(place).iterdir()), "checkpoints outlive the client"
    wait_for(lambda: state(client)["runs"] == (), "the run of the dead client has ended")
    result = fitted(client, checkpoint=place, resume=True)
    check_as(result, undisturbed, rtol=0, atol=0)
    assert result.ledger.repeated == 0
