"""Optimizers of a worker and servers, in one process: what is applied is what Keras applies, once each, or refused."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from dask_train.data.columns import Columns
from dask_train.errors import RoleFailedError
from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.applying import at_every_apply
from dask_train.fitting.roles.models import build
from dask_train.fitting.roles.parameter_server import ParameterServer
from dask_train.fitting.roles.pushing import Pushing
from dask_train.fitting.roles.servers import servers_of
from dask_train.fitting.roles.weights import value_of
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.fitting.spec import FitTask
from dask_train.frameworks.ports import hold_port
from dask_train.keras_models import state
from dask_train.keras_models.serialization import model_to_parts
from dask_train.role.time_spent import TimeSpent

STEPS = 6
ROWS = np.random.default_rng(0).normal(size=(STEPS, 8, 4)).astype("f4")


class Gan(keras.Model):
    """Two optimizers of its own; the first one is asked twice a step."""

    def __init__(self, make_optimizer=lambda: keras.optimizers.Adam(0.05), **kwargs):
        super().__init__(**kwargs)
        self.critic = keras.Sequential([layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(1)])
        self.maker = keras.Sequential([layers.Input((4,)), layers.Dense(4)])
        self.make_optimizer = make_optimizer

    def compile(self, **kwargs):
        super().compile(**kwargs)
        self.optimizers = [self.make_optimizer(), self.make_optimizer()]

    def call(self, x):
        return self.maker(x)

    def train_step(self, x):
        for _ in range(2):
            with tf.GradientTape() as tape:
                lost = tf.reduce_mean((self.critic(x) - 1.0) ** 2) + tf.reduce_mean(self.critic(self.maker(x)) ** 2)
            weights = self.critic.trainable_variables
            self.optimizers[0].apply_gradients(zip(tape.gradient(lost, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            lost = tf.reduce_mean((self.critic(self.maker(x)) - 1.0) ** 2)
        weights = self.maker.trainable_variables
        self.optimizers[1].apply(tape.gradient(lost, weights), weights)
        return {"lost": lost}


def gan(**kwargs):
    keras.utils.set_random_seed(1)
    model = Gan(**kwargs)
    model.compile()
    model.build((None, 4))
    build(model, Columns(features=0))
    return model


class Session:
    """What servers and workers ask of theirs."""

    tls = None

    def __init__(self, addresses, rank):
        self.peers, self.size, self.rank = {"ps": addresses}, len(addresses), rank
        self.host = addresses[0].rpartition(":")[0]
        self._link = SimpleNamespace(spent=TimeSpent())


class Together:
    """A worker's model and its servers."""

    def __init__(self, model, addresses):
        header, arrays = model_to_parts(model)
        self.task = FitTask(header=header, arrays=arrays, columns=Columns(features=0), collective_timeout_s=30.0)
        self.backend = backend_of("tensorflow")
        self.addresses = addresses
        self.roles = [
            ParameterServer(self.task, Session(addresses, rank), self.backend) for rank in range(len(addresses))
        ]
        self.open = []
        self.model, self.servers, self.pushing = self.worker(model)
        self.servers.bring([{}] * len(addresses), {}, WorkerCounts(((0, 2),)), 0)
        self.pushing.note()

    def worker(self, model, rank=0):
        servers = servers_of(self.task, model, Session(self.addresses, rank))
        self.open.append(servers)
        return model, servers, Pushing(model, self.backend, servers, rank)

    def train(self, first=0, stop=STEPS, worker=None, rank=0):
        """Steps ``first`` to ``stop`` of a worker; how many have pushed all weights."""
        model, servers, pushing = worker or (self.model, self.servers, self.pushing)
        num_all = 0
        with at_every_apply(pushing):
            run = self.backend.compiled(model.train_step, model, tf.constant(ROWS[0]))
            for step in range(first, stop):
                pushing.begin_step(step + 1, looks=True)
                run(tf.constant(ROWS[step]))
                num_all += pushing.end_step()
                servers.step(rank=rank, steps=step + 1, counted=(0, None), statistics=False, weights=False)
        return num_all

    def close(self):
        for one in (*self.open, *self.roles):
            one.close()


@pytest.fixture
def together():
    opened, ports = [], []

    def make(model, num_servers=1):
        for _ in range(num_servers):
            ports.append(hold_port())
        addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports[-num_servers:]]
        opened.append(Together(model, addresses))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    for port in ports:
        port.close()


def trained_by_keras(model, stop=STEPS):
    for rows in ROWS[:stop]:
        model.train_step(tf.constant(rows))
    return model


def check_alike(found, wanted):
    assert len(found.weights) == len(wanted.weights)
    pairs = [
        *zip(found.weights, wanted.weights, strict=True),
        *zip(state.optimizer_variables(found), state.optimizer_variables(wanted), strict=True),
    ]
    for one, other in pairs:
        np.testing.assert_allclose(value_of(one), value_of(other), rtol=1e-5, atol=1e-6, err_msg=one.path)


@pytest.mark.parametrize(
    ("num_servers", "optimizer"),
    [
        (1, lambda: keras.optimizers.Adam(0.05)),
        (3, lambda: keras.optimizers.Adam(0.05, use_ema=True, clipnorm=1.0)),
        (2, lambda: keras.optimizers.Adafactor(0.05)),
        (2, lambda: keras.optimizers.Nadam(0.05)),
        (2, lambda: keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=2)),
    ],
)
def test_several_optimizers_that_are_asked_several_times_a_step(together, num_servers, optimizer):
    there = together(gan(make_optimizer=optimizer), num_servers)
    assert there.train() == STEPS
    there.servers.everything()
    check_alike(there.model, trained_by_keras(gan(make_optimizer=optimizer)))


def test_a_step_that_is_taken_again_is_applied_once(together):
    there = together(gan(), 2)
    there.train(stop=3)
    model, _, pushing = there.model, there.servers, there.pushing
    asked = there.servers.apply

    def apply(*args, index, **told):
        if index == 2:
            raise ConnectionResetError("killed")
        return asked(*args, index=index, **told)

    there.servers.apply = apply
    with pytest.raises(Exception, match="killed"):
        there.train(3, 4)
    assert isinstance(pushing.failure, ConnectionResetError)
    another = there.worker(gan())
    assert another[1].begin(0, 5.0)[:2] == (True, 3)
    another[2].note()
    there.train(3, worker=another)
    another[1].everything()
    wanted = trained_by_keras(gan())
    assert int(another[0].optimizers[0].iterations) == int(wanted.optimizers[0].iterations) == 12
    assert int(another[0].optimizers[1].iterations) == 6
    assert model is not another[0]


class Own(keras.Model):
    """With a step of its own."""

    def __init__(self, step, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.slow = layers.Dense(1), layers.Dense(1)
        self.step = step

    def call(self, x):
        return self.dense(x) + self.slow(x)

    def train_step(self, x):
        with tf.GradientTape() as tape:
            lost = tf.reduce_mean(self.dense(x) ** 2)
        self.step(self, tape.gradient(lost, self.dense.trainable_variables))
        return {"lost": lost}


def own(step, frozen=False):
    model = Own(step)
    model.compile("sgd")
    model(np.zeros((1, 4), "f4"))
    model.slow.trainable = not frozen
    optimizer = keras.optimizers.SGD(0.1)
    model.hidden = lambda: optimizer
    model.beta = tf.Variable(0.0, trainable=False)
    build(model, Columns(features=0))
    return model


def applied(model, gradients):
    model.optimizer.apply(gradients, model.dense.trainable_variables)


def assigned(model, gradients):
    for variable, gradient in zip(model.dense.trainable_variables, gradients, strict=True):
        variable.assign_sub(0.1 * gradient)


def assigned_and_applied(model, gradients):
    assigned(model, gradients)
    applied(model, gradients)


def followed(model, gradients):
    applied(model, gradients)
    for slow, fast in zip(model.slow.weights, model.dense.weights, strict=True):
        slow.assign(0.9 * slow + 0.1 * fast)


def counted(model, gradients):
    applied(model, gradients)
    model.beta.assign_add(1.0)


def hidden(model, gradients):
    model.hidden().apply(gradients, model.dense.trainable_variables)


@pytest.mark.parametrize(
    ("step", "frozen", "words"),
    [
        (assigned, False, "went by without an optimizer that applied gradients"),
        (assigned_and_applied, False, r"has changed '.*kernel' by itself, not through an optimizer"),
        (followed, False, r"has changed '.*kernel' by itself, not through an optimizer"),
        (followed, True, r"has changed '.*kernel' by itself, not through an optimizer"),
        (counted, False, "has changed 'Variable:0' by itself, not through an optimizer"),
        (hidden, False, r"Optimizer 'sgd.*' trains weights of model '.*', which does not show it"),
    ],
)
def test_what_servers_would_lose_is_refused(together, step, frozen, words):
    there = together(own(step, frozen=frozen))
    with pytest.raises(Exception, match=words):
        there.train()


def test_what_is_no_concern_of_the_model(together):
    outside = keras.Variable(np.ones(3, "f4"))
    other = keras.optimizers.SGD(0.5)
    other.build([outside])

    def step(model, gradients):
        other.apply([tf.ones(3)], [outside])
        applied(model, gradients)

    model = own(step)
    there = together(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert there.train(stop=2) == 0, "no gradients of the other layer"
    np.testing.assert_array_equal(value_of(outside), np.zeros(3))


def test_a_server_that_fails_says_why(together):
    there = together(gan())
    with pytest.raises(RoleFailedError, match=r"A parameter server failed at what it was asked: .*IndexError"):
        there.servers.apply([0], [(np.zeros((4, 3)),)], rank=0, steps=1, index=0, optimizer=9, scale=None)


def test_what_callbacks_have_set_reaches_all(together):
    there = together(own(applied, frozen=True))
    another, servers, _ = there.worker(own(applied, frozen=True), rank=1)
    for model in (there.model, another):
        model.optimizer.learning_rate = 0.5
    servers.begin(1, 5.0)
    there.model.optimizer.learning_rate = 0.125
    for variable in (*there.model.weights, there.model.beta):
        variable.assign(value_of(variable) + 1)
    there.servers.give([*there.model.weights, there.model.beta, there.model.optimizer._learning_rate])
    servers.step(rank=1, steps=1, counted=(0, None), statistics=False, weights=True)
    assert servers.take_others()
    assert not servers.take_others()
    servers.everything()
    check_alike(another, there.model)
    assert float(another.optimizer.learning_rate) == 0.125
    assert float(another.beta) == 1.0


@pytest.mark.parametrize("sets", ["rate", "bias"])
def test_what_others_push_before_a_callback_sets_something_is_no_change_by_a_step(together, sets):
    there = together(own(applied))
    other = there.worker(own(applied), rank=1)
    other[1].begin(1, 5.0)
    other[2].note()
    there.train(stop=1, worker=other, rank=1)
    model = there.model
    bias, rate = model.dense.bias, model.optimizer._learning_rate
    variable = {"rate": rate, "bias": bias}[sets]
    variable.assign(value_of(variable) + 0.5)
    there.servers.give([variable])
    assert there.train(stop=1) == 0, "no gradients of the other layer"
    there.servers.everything()
    np.testing.assert_allclose(float(model.optimizer.learning_rate), 0.51 if sets == "rate" else 0.01)


def test_a_checkpoint_that_servers_were_asked_for_in_mid_step(together):
    """One server has had a worker's calls of the next step by then, the other has not."""
    there = together(gan(), 2)
    assert there.servers.everything()["progress"] == [{}, {}]
    there.servers.bring([{0: (3, 2)}, {0: (3, 0)}], {}, WorkerCounts(((0, 2),)), 0)
    assert there.servers.everything()["steps"] == {0: 3}
    there.train(3, 4)
    _, critic, maker = zip(*[[int(each.iterations) for each in role._optimizers] for role in there.roles], strict=True)
    assert (critic, maker) == ((0, 2), (1, 1))
    told = there.servers.everything()
    assert (told["steps"], told["progress"]) == ({0: 4}, [{0: (4, 0)}] * 2)
