"""Training through parameter servers: counts are exact, whoever is killed."""

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

ROWS, BATCH_SIZE, EPOCHS = 1001, 20, 5
STEPS = -(-ROWS // BATCH_SIZE)  # the last batch has one row, so one worker of two has none of it


def rows(seed=0):
    random = np.random.default_rng(seed)
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


def made(*, slow=False, optimizer=None, loss_weight=None):
    keras.utils.set_random_seed(3)
    inputs = layers.Input((6,))
    hidden = layers.BatchNormalization()(layers.Dense(8, activation="tanh")(inputs))
    model = keras.Model(inputs, layers.Dense(2)(Slow()(hidden) if slow else hidden))
    model.compile(
        optimizer or keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        loss_weights=loss_weight,
    )
    return model


def check(result, model):
    assert result.ledger.trained == ROWS * EPOCHS
    assert result.ledger.dropped == 0
    assert len(result.history["loss"]) == EPOCHS
    # Every worker has pushed once for each batch that it had rows of: a metric's count is that of all rows.
    assert int(model.optimizer.iterations) == EPOCHS * (2 * STEPS - 1)
    x, y = rows(1)
    loss, accuracy = model.evaluate(np.asarray(x), np.asarray(y), verbose=0)
    assert accuracy > 0.9
    assert np.isfinite(loss)


@pytest.mark.parametrize("num_servers", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_all_rows_count_once(client, num_servers):
    model = made()
    result = dt.fit(
        model,
        *rows(),
        workers=2,
        ps=num_servers,
        scorer=num_servers - 1,
        validation_data=rows(1),
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        client=client,
    )
    check(result, model)
    assert result.history["accuracy"][-1] > result.history["accuracy"][0]
    scored = [score for score in result.scores if score["role"] == "scorer"]
    if num_servers == 1:
        assert len(result.history["val_accuracy"]) == EPOCHS
    else:
        assert scored
        assert all({"val_loss", "val_accuracy", "updates"} <= score.keys() for score in scored)


def killed(run, role, rank, until):
    roles = until(run, 2)
    os.kill(roles[role, rank]["pid"], signal.SIGKILL)


class Counting(keras.callbacks.Callback):
    """Counts the epochs that end."""

    num_epochs = 0

    def on_epoch_end(self, epoch, logs=None):
        self.num_epochs = self.num_epochs + 1


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_killed_worker_is_replaced_and_goes_on_where_it_was(client, until, rank):
    model, counting = made(slow=True), Counting()
    run = dt.fit(
        model,
        *rows(),
        workers=2,
        ps=1,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        callbacks=[counting],
        client=client,
        wait=False,
    )
    next(score for score in run.scores() if score["epoch"] == 1 and "step" not in score)  # the end of an epoch
    killed(run, "worker", rank, until)
    result = run.result()
    assert [set(attempt.places) for attempt in result.attempts[1:]] == [{f"worker/{rank}"}]
    assert result.epoch == list(range(EPOCHS))
    assert counting.num_epochs == EPOCHS
    check(result, model)


def test_a_killed_server_restores_from_the_last_checkpoint(client, until, tmp_path):
    model = made(slow=True)
    run = dt.fit(
        model,
        *rows(),
        workers=2,
        ps=1,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        checkpoint=dt.Checkpoint(tmp_path, every_steps=10),
        client=client,
        wait=False,
    )
    killed(run, "ps", 0, until)
    result = run.result()
    assert len(result.attempts) == 2
    assert len(result.attempts[1].places) == 3
    check(result, model)


def test_a_scaled_loss(client):
    """A scale that is doubled until gradients overflow: such steps change nothing but the scale, on all workers."""
    scaler = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=2.0**100, dynamic_growth_steps=5
    )
    model = made(optimizer=scaler, loss_weight=1e8)  # gradients overflow before the scale does
    result = dt.fit(model, *rows(), workers=2, ps=1, epochs=EPOCHS, batch_size=BATCH_SIZE, client=client)
    assert result.ledger.trained == ROWS * EPOCHS
    brought, applied = EPOCHS * (2 * STEPS - 1), int(model.optimizer.iterations)
    assert brought * 0.5 < applied < brought
    assert 2.0**95 < float(model.optimizer.dynamic_scale) < 2.0**125
    x, y = rows(1)
    assert model.evaluate(np.asarray(x), np.asarray(y), verbose=0)[1] > 0.9
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


class Seen(keras.callbacks.Callback):
    """Notes what callbacks see of the optimizer and of the weights, and sets a weight that nobody trains."""

    def __init__(self):
        super().__init__()
        self.iterations, self.at_the_end = [], None

    def on_epoch_begin(self, epoch, logs=None):
        self.model.scale.assign(float(epoch))

    def on_epoch_end(self, epoch, logs=None):
        self.iterations.append(int(self.model.optimizer.iterations))

    def on_train_end(self, logs=None):
        self.at_the_end = self.model.get_weights()


class Scaled(keras.Model):
    """Two optimizers, one of them asked with the weights that the other has left; a weight that callbacks set."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(8, activation="tanh")
        self.out = layers.Dense(1)
        self.critic = keras.optimizers.Adam(0.01)

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones", dtype="int32", trainable=False)
        self.hidden.build(shape)
        self.out.build((None, 8))

    def call(self, inputs):
        return self.out(self.hidden(inputs))

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            lost = tf.reduce_mean((self(x) - tf.cast(y[:, None], x.dtype)) ** 2)
        weights = self.out.trainable_variables
        self.critic.apply_gradients(zip(tape.gradient(lost, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            lost = tf.reduce_mean((self(x) - tf.cast(y[:, None], x.dtype)) ** 2)
        weights = self.hidden.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(lost, weights), weights, strict=True))
        return {"loss": lost, "scale": tf.cast(self.scale, "float32")}


def scaled():
    keras.utils.set_random_seed(3)
    model = Scaled()
    model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9))
    model.build((None, 6))
    for optimizer in (model.optimizer, model.critic):
        optimizer.build(model.trainable_variables)
    return model


def test_two_optimizers_and_moving_averages_of_weights(client):
    """One worker, so it is Keras' own training; what callbacks see, and what they set, is the same."""
    mine, keras_own, seen, wanted = scaled(), scaled(), Seen(), Seen()
    x, y = map(np.asarray, rows())
    shared = {"epochs": 2, "batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0}
    told = keras_own.fit(x, y, callbacks=[wanted], **shared)
    result = dt.fit(mine, *rows(), callbacks=[seen], workers=1, ps=2, client=client, **shared)
    for name, values in told.history.items():
        np.testing.assert_allclose(result.history[name], values, rtol=1e-5)
    assert seen.iterations == wanted.iterations == [STEPS, 2 * STEPS]
    for found, other in ((mine.get_weights(), keras_own.get_weights()), (seen.at_the_end, wanted.at_the_end)):
        for one, another in zip(found, other, strict=True):
            np.testing.assert_allclose(one, another, rtol=1e-5, atol=1e-6)
    assert int(mine.critic.iterations) == 2 * STEPS


def test_what_a_callback_sets_is_what_training_ends_with(client):
    """The other worker brings gradients while the first one's callbacks stop training."""
    stopping = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=10.0, restore_best_weights=True)
    model, seen = scaled(), Seen()
    result = dt.fit(
        model, *rows(), workers=2, ps=1, epochs=50, batch_size=BATCH_SIZE, callbacks=[seen, stopping], client=client
    )
    assert "a callback stopped training in epoch 2" in result.stop_reason
    for found, wanted in zip(model.get_weights(), stopping.best_weights, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert seen.iterations[-1] > 2 * STEPS, "of both workers"


def test_a_rule_ends_all(client):
    result = dt.fit(
        made(),
        *rows(),
        workers=2,
        ps=1,
        scorer=1,
        validation_data=rows(1),
        epochs=500,
        batch_size=BATCH_SIZE,
        stop="val_accuracy > 0.9",
        client=client,
    )
    assert "val_accuracy" in result.stop_reason
