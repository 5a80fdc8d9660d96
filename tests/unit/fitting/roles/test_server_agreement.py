"""What one worker with parameter servers does at each moment, without any other."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.roles.server_agreement import ServerAgreement


@pytest.fixture
def model():
    made = keras.Sequential([layers.Input((1,)), layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.5), "mse")
    made.optimizer.build(made.trainable_variables)
    made.stop_training = False
    return made


@pytest.fixture
def moment_of(model):
    """A worker's moments; ``did`` is what servers were given, and ``stops`` whether the run is to end."""

    def moment(rank=0):
        it = SimpleNamespace(did=[], stops=False)
        session = SimpleNamespace(rank=rank, size=2, should_stop=lambda: it.stops)
        servers = SimpleNamespace(give=lambda variables: it.did.append([one.path for one in variables]))
        pushing = SimpleNamespace(note=lambda: it.did.append("noted"))
        it.moment = ServerAgreement(model, session, servers, pushing, lambda: it.did.append("settled"))
        return it

    return moment


def test_what_callbacks_of_the_first_worker_set_goes_to_the_servers(model, moment_of):
    it = moment_of()
    it.moment.weights.note()
    model.layers[0].bias.assign([2.0])
    model.optimizer.learning_rate = 0.25
    it.moment.pass_on(new_weights=it.moment.weights.changed(), new_rates=True)
    rate = model.optimizer._learning_rate
    assert it.did == [[model.layers[0].bias.path, rate.path, rate.path], "noted"]
    assert [one.path for one, _ in it.moment.ending] == [model.layers[0].bias.path]
    it.did.clear()
    it.moment.pass_on()
    assert it.did == [], "nothing is new"


def test_rates_that_servers_have_set_are_not_given_back(model, moment_of):
    """As of a worker that takes the first one's place."""
    it = moment_of()
    model.optimizer.learning_rate = 0.25
    it.moment.note_rates()
    it.moment.pass_on()
    assert it.did == []


def test_each_worker_looks_for_itself_whether_to_stop(model, moment_of):
    it = moment_of(rank=1)
    assert it.moment.flags(False, False) == (False, False)
    it.stops = True
    assert it.moment.flags(False, False) == (False, True)
    assert model.stop_training
    assert it.moment.control.halt
    assert not model._should_eval(0, 1), "no validation follows"


def test_training_ends_with_the_weights_that_the_callback_saw_that_stopped_it(model, moment_of):
    it = moment_of()
    model.stop_training = True
    assert it.moment.flags(True, False) == (True, True)
    assert [one.path for one, _ in it.moment.ending] == [one.path for one in model.weights]
    for variable, value in it.moment.ending:
        np.testing.assert_array_equal(variable, value)
    assert not it.moment.control.halt, "the last epoch is validated"
    it.moment.finish_training()
    assert it.did == ["settled"]


def test_what_is_put_in_place_for_a_validation_concerns_nobody(model, moment_of):
    moment = moment_of().moment
    before = model.get_weights()
    moment.weights.note()
    moment.control.testing = True
    moment.weights.note()
    model.layers[0].bias.assign([2.0])
    assert not moment.weights.changed()
    model.set_weights(before)
    moment.control.testing = False
    assert not moment.weights.changed()


def test_nothing_is_gathered(moment_of):
    moment = moment_of().moment
    assert moment.of_first("value") == "value"
    with pytest.raises(AssertionError, match="gather nothing"):
        moment.of_all("value")
