"""Numbers in attributes that callbacks set: all workers have them, or they are refused in words."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.roles.agreement import CallbackAgreement
from dask_train.fitting.roles.control import Control
from dask_train.fitting.roles.server_agreement import ServerAgreement
from dask_train.fitting.roles.watched_numbers import WatchedNumbers


class Weighted(keras.Model):
    """Weighs a loss of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dropout, self.dense = layers.Dropout(0.5), layers.Dense(1)
        self.loss_weight = 0.0

    def call(self, x):
        return self.dense(self.dropout(x))


def made():
    model = Weighted()
    model.compile(keras.optimizers.SGD(0.1, weight_decay=0.1), keras.losses.Huber())
    model(np.zeros((1, 2), "f4"))
    model.optimizer.build(model.trainable_variables)
    model.stop_training = False
    return model


def set_by_callback(model):
    model.loss_weight = np.float32(0.25)
    model.is_late = True
    model.dropout.rate = 0.75
    model.optimizer.weight_decay = 0.0
    model.stop_training = True


def values(model):
    return model.loss_weight, model.is_late, model.dropout.rate, model.optimizer.weight_decay


def test_numbers_that_were_set_are_found():
    model, other = made(), made()
    watched = WatchedNumbers(model)
    watched.note()
    assert watched.changed() == {}
    set_by_callback(model)
    found = watched.changed()
    WatchedNumbers(other).set(found)
    assert values(other) == values(model)
    assert len(found) == 4
    assert "'loss_weight' of 'weighted" in watched.names(found)
    assert not other.stop_training, "workers agree on it in another way"


def test_what_is_not_a_number_stays_the_same():
    model = made()
    model.loss_weight, model.dropout.own = float("nan"), np.float32("nan")
    watched = WatchedNumbers(model)
    watched.note()
    model.loss_weight = np.float32("nan")
    assert watched.changed() == {}
    model.loss_weight = 0.5
    model.optimizer.weight_decay = float("nan")
    assert len(watched.changed()) == 2


def test_all_workers_have_what_callbacks_of_the_first_one_set(on_each_rank):
    """Also one that takes the place of another later."""
    models = [made() for _ in range(3)]

    def take_part(rank, group):
        model = models[rank]
        weights = SimpleNamespace(new_optimizers=False)
        moment = CallbackAgreement(model, group, Control(model, group), weights, lambda: False, lambda: None)
        moment.loop = SimpleNamespace(note_numbers=lambda names: None)
        state = moment.state()
        if rank == 0:
            moment.numbers.note()
            set_by_callback(model)
            model.stop_training = False
            moment.give_numbers()
        moment.pass_on()
        moment.pass_on()
        moment.state()
        if rank:
            moment.restore(state)
            model.loss_weight = 0.0
            moment.take_up()

    on_each_rank(take_part, 3)
    assert [values(model) for model in models] == [(0.25, True, 0.75, 0.0)] * 3


def test_servers_refuse_them():
    model = made()

    def moment(size):
        session = SimpleNamespace(rank=0, size=size, should_stop=lambda: False)
        one = ServerAgreement(model, session, None, None, lambda: None)
        told = []
        one.loop = SimpleNamespace(note_numbers=told.append)
        one.numbers.note()
        return one, told

    several, _ = moment(2)
    several.give_numbers()
    model.loss_weight += 1.0
    with pytest.raises(ValueError, match=r"A callback has set 'loss_weight' of 'weighted.*keras\.Variable"):
        several.give_numbers()
    alone, told = moment(1)
    model.loss_weight += 1.0
    alone.give_numbers()
    assert len(told) == 1, "a scorer has another model"


def test_what_is_trainable_can_not_change_on_one_worker():
    model = made()
    watched = WatchedNumbers(model)
    watched.note()
    watched.check_trainable()
    model.dense.trainable = False
    with pytest.raises(ValueError, match="A callback has set trainable of a layer or a weight"):
        watched.check_trainable()


def test_what_keras_sets_by_itself_is_none_of_them(tmp_path):
    """A callback may predict, evaluate and save."""
    model, rows = made(), np.zeros((4, 2), "f4")
    watched = WatchedNumbers(model)
    watched.note()
    model.predict(rows, verbose=0)
    model.evaluate(rows, np.zeros((4, 1), "f4"), verbose=0)
    model.save_weights(tmp_path / "kept.weights.h5")
    model.get_config()
    model.reset_metrics()
    assert watched.changed() == {}
