"""Keras' own callbacks that write files, and those that act on training: in the first worker, as in one process."""

from __future__ import annotations

import csv

import dask.array as da
import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt

pytestmark = pytest.mark.slow

ROWS, BATCH_SIZE, EPOCHS = 230, 50, 3  # 5 steps an epoch


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return da.from_array(x, chunks=(60, 6)), da.from_array((x.sum(1) > 0).astype("i8"), chunks=60)


def made(rate=0.5):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
    model.compile(
        keras.optimizers.SGD(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    return model


def fitted(client, callbacks, model=None, **arguments):
    settings = {"workers": 2, "batch_size": BATCH_SIZE, "epochs": EPOCHS, "validation_data": rows(1), **arguments}
    return dt.fit(model or made(), *rows(), callbacks=callbacks, client=client, **settings)


def scalars_of(folder):
    """What TensorBoard shows: by tag, the steps and the values."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    found = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}
    return {
        tag: ([each.step for each in values], [make_ndarray(each.tensor_proto) for each in values])
        for tag, values in found.items()
    }


# Where workers train asynchronously, logs have what all have counted by then; the history has all rows of the epoch.
@pytest.mark.parametrize(("ps", "workers"), [(0, 2), pytest.param(1, 1, marks=pytest.mark.nightly)])
def test_tensorboard_shows_the_history(client, tmp_path, ps, workers):
    board = keras.callbacks.TensorBoard(tmp_path, update_freq="epoch", write_graph=False, histogram_freq=1)
    result = fitted(client, [board], ps=ps, workers=workers)
    for part, prefix in (("train", ""), ("validation", "val_")):
        scalars = scalars_of(tmp_path / part)
        for name in ("loss", "accuracy"):
            steps, values = scalars[f"epoch_{name}"]
            assert steps == list(range(EPOCHS))
            np.testing.assert_allclose(values, result.history[prefix + name], rtol=1e-6)
    again = fitted(client, [board], model=result.model, initial_epoch=EPOCHS, epochs=EPOCHS + 1, ps=ps, workers=workers)
    steps, values = scalars_of(tmp_path / "train")["epoch_loss"]
    assert steps == list(range(EPOCHS + 1)), "the same callback goes on in the same folder"
    np.testing.assert_allclose(values[EPOCHS:], again.history["loss"], rtol=1e-6)


def test_tensorboard_of_batches(client, tmp_path):
    fitted(client, [keras.callbacks.TensorBoard(tmp_path, update_freq=1, write_graph=False)])
    steps, _ = scalars_of(tmp_path / "train")["batch_loss"]
    assert len(steps) == 5 * EPOCHS


def test_what_is_written_besides(client, tmp_path):
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True)
    each = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}-{val_loss:.4f}.weights.h5", save_weights_only=True)
    result = fitted(client, [log, best, each])
    with (tmp_path / "log.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["epoch"]) for line in lines] == list(range(EPOCHS))
    for name, values in result.history.items():
        np.testing.assert_allclose([float(line[name]) for line in lines], values, rtol=1e-6, err_msg=name)
    losses = result.history["val_loss"]
    assert sorted(file.name for file in tmp_path.glob("*.h5")) == [
        f"{epoch}-{loss:.4f}.weights.h5" for epoch, loss in enumerate(losses, 1)
    ]
    assert best.best == pytest.approx(min(losses)), "the instance that was passed knows it"
    kept = keras.models.load_model(tmp_path / "best.keras")
    x, y = map(np.asarray, rows(1))
    assert kept.evaluate(x, y, verbose=0)[0] == pytest.approx(min(losses), rel=1e-5)


class Elsewhere(keras.callbacks.Callback):
    """Sets where training begins, as callbacks do that restore backups."""

    def on_train_begin(self, logs=None):
        self.model._initial_epoch = 1


def test_a_callback_that_begins_elsewhere_is_told_so(client):
    with pytest.raises(dt.RoleFailedError, match="A callback has set model"):
        fitted(client, [Elsewhere()])


def rate_of(model):
    return float(model.optimizer.learning_rate.value.numpy())


@pytest.mark.parametrize("ps", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_schedule_by_epochs(client, ps):
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2 if epoch else rate)
    result = fitted(client, [schedule], ps=ps)
    np.testing.assert_allclose(result.history["learning_rate"], [0.5, 0.25, 0.125])
    assert rate_of(result.model) == pytest.approx(0.125)


def test_those_that_act(client):
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.1, patience=0, min_delta=9.0)
    result = fitted(client, [plateau])
    np.testing.assert_allclose(result.history["learning_rate"], [0.5, 0.5, 0.05], rtol=1e-6)
    result = fitted(client, [keras.callbacks.TerminateOnNaN()], model=made(rate=1e38), epochs=50)
    assert len(result.history["loss"]) < 50
    assert not np.isfinite(result.history["loss"][-1])
