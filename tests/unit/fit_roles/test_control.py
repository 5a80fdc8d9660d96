"""What the first worker decides reaches the others."""

from __future__ import annotations

import os
import threading

import keras
import pytest
from keras import layers

from dask_train.agreement import Hosts, Replicas, meet
from dask_train.fit_roles.control import Control

HOSTS = Hosts.of([f"10.0.0.2:{os.getpid()}-{rank}" for rank in range(2)])


def made(optimizer):
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize("scaled", [False, True])
def test_flags_and_rates(scaled):
    def optimizer():
        inner = keras.optimizers.SGD(0.5)
        return keras.optimizers.LossScaleOptimizer(inner) if scaled else inner

    models, controls = [made(optimizer()), made(optimizer())], [None, None]

    def take_part(rank):
        replicas = Replicas(HOSTS, rank, meet(HOSTS, rank, 10.0), None, 10.0)
        control = controls[rank] = Control(models[rank], replicas)
        if rank == 0:
            control.stop_training = control.gather = True
            models[0].optimizer.learning_rate = 0.125
        else:
            control.keep = True
        control.agree()
        replicas.close()

    ranks = [threading.Thread(target=take_part, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(20)
    assert [control.stop_training and control.gather and not control.keep for control in controls] == [True, True]
    assert [float(model.optimizer.learning_rate.value) for model in models] == [0.125, 0.125]


def test_a_schedule_is_left_alone():
    replicas = Replicas(Hosts.of(["solo:0"]), 0, meet(Hosts.of(["solo:0"]), 0, 1.0), None, 1.0)
    model = made(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)))
    Control(model, replicas).agree()
    assert float(model.optimizer.learning_rate) == 0.5
    replicas.close()
