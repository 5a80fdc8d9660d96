"""Callbacks run in the first worker and act on all; what they see is of all workers."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
from keras import layers

import dask_train as dt

ROWS = 230


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return x, (x.sum(1) > 0).astype("i8")


def made(metrics=("accuracy",)):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
    model.compile(
        keras.optimizers.SGD(0.5, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=list(metrics),
    )
    return model


class Watching(keras.callbacks.Callback):
    """Changes the rate in the middle of epochs, ends training by itself, and remembers what it has seen."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            self.model.optimizer.learning_rate = 0.1

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, round(float(logs["loss"]), 4), round(float(logs["accuracy"]), 4)))
        if batch == 2:
            self.model.optimizer.learning_rate.assign(0.4)
        if len(self.seen) == 11:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            self.model.set_weights([0.5 * weights for weights in self.model.get_weights()])


def fitted(callbacks, num_workers, client=None, metrics=("accuracy",)):
    """One model, trained in this process or by workers."""
    model, (x, y), held_out = made(metrics), rows(), rows(1)
    arguments = {"batch_size": 50, "epochs": 6, "shuffle": False, "validation_data": held_out, "callbacks": callbacks}
    if num_workers == 0:
        return model, model.fit(x, y, verbose=0, **arguments).history
    result = dt.fit(model, x, y, workers=num_workers, client=client, **arguments)
    assert result.model is model
    return model, result.history


def check_same(one, other):
    for a, b in zip(one[0].get_weights(), other[0].get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert one[1].keys() == other[1].keys()
    for name, values in one[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=1e-3, err_msg=name)


def test_what_a_callback_sets_acts_on_all_workers(client):
    alone, among = Watching(), Watching()
    check_same(fitted([alone], 0), fitted([among], 2, client))
    assert [batch for batch, *_ in among.seen] == [0, 1, 2, 3, 4] * 2 + [0], "it ended on that step"
    np.testing.assert_allclose(among.seen, alone.seen, atol=2e-3, err_msg="logs of each batch are of all workers")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras reads its rate so
def test_early_stopping_restores_the_best_weights_on_all(client):
    def stopping():
        return [
            keras.callbacks.EarlyStopping("val_loss", patience=1, start_from_epoch=1, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.1, patience=0, min_delta=0.5),
        ]

    alone, among = stopping(), stopping()
    check_same(fitted(alone, 0), fitted(among, 2, client))
    assert among[0].best_epoch == alone[0].best_epoch
    assert among[0].best == pytest.approx(alone[0].best, rel=1e-3)


class Gathering(keras.callbacks.Callback):
    """Gathers into a list that it is handed."""

    def __init__(self, into):
        super().__init__()
        self.into = into

    def on_epoch_end(self, epoch, logs=None):
        self.into.append(logs["loss"])


def test_lists_of_the_script_are_filled_once_also_where_training_resumes(client, tmp_path):
    seen, handed, locks, count = [], [], [], 0

    def note(epoch, logs):
        nonlocal count
        seen.append(logs["loss"])
        locks.append(threading.Lock())
        count += 1

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=note), Gathering(handed)]
    model, (x, y) = made(), rows()
    for epochs in (1, 3):
        result = dt.fit(
            model,
            x,
            y,
            workers=2,
            batch_size=50,
            epochs=epochs,
            callbacks=callbacks,
            checkpoint=tmp_path,
            resume=True,
            client=client,
        )
        assert seen == handed == result.history["loss"]
        assert (len(seen), count, callbacks[1].into is handed) == (epochs, epochs, True)
        assert any("Callbacks have changed locks in" in notice for notice in result.notices)
    assert locks == []


def test_a_rule_ends_all_and_a_second_call_goes_on(client):
    model, (x, y) = made(), rows()
    result = dt.fit(
        model, x, y, workers=2, batch_size=50, epochs=500, stop="loss < 0.2", client=client, validation_data=rows(1)
    )
    assert "loss" in result.stop_reason
    num_epochs = len(result.history["loss"])
    assert num_epochs < 500
    assert result.ledger.read == result.ledger.trained
    assert result.ledger.trained + result.ledger.dropped == ROWS * -(-result.ledger.trained // ROWS)
    steps = int(model.optimizer.iterations)
    again = dt.fit(model, x, y, workers=2, batch_size=50, epochs=1, client=client)
    assert int(model.optimizer.iterations) == steps + 5, "the optimizer went on where it was"
    assert again.model is model


def test_a_rule_on_what_nothing_computes_ends_the_run_after_an_epoch(client):
    class Telling(keras.callbacks.Callback):
        """May add scores of its own."""

    settings = {"epochs": 50, "workers": 2, "callbacks": [Telling()], "client": client}
    with pytest.raises(dt.RoleFailedError) as caught:
        dt.fit(made(), *rows(), stop="nonsense < 1 or loss < -1", **settings)
    assert "stop looks at nonsense, and after the first epoch there are accuracy, loss" in str(caught.value)


def test_metrics_may_have_names_that_scores_have_already(client):
    names = ["time", "rank", "role", "attempt", "epoch", "step"]
    (x, y), model = rows(), made([keras.metrics.SparseCategoricalAccuracy(name=name) for name in names])
    rule = "time_metric >= 0"
    result = dt.fit(model, x, y, workers=2, batch_size=50, epochs=500, shuffle=False, stop=rule, client=client)
    assert "time_metric" in result.stop_reason
    assert set(result.history) == {"loss", *names}
    assert {f"{name}_metric" for name in names} <= result.scores[-1].keys()
    assert result.scores[-1]["role"] == "worker"
