"""What the first worker decides reaches the others."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import keras
import pytest
from keras import layers

from dask_train.collectives import Hosts, ProcessGroup, meet
from dask_train.fitting.roles.control import Control


def made(optimizer):
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize("scaled", [False, True])
def test_flags_and_rates(scaled, on_each_rank):
    def optimizer():
        inner = keras.optimizers.SGD(0.5)
        return keras.optimizers.LossScaleOptimizer(inner) if scaled else inner

    models, controls = [made(optimizer()), made(optimizer())], [None, None]

    def take_part(rank, replicas):
        control = controls[rank] = Control(models[rank], replicas)
        if rank == 0:
            control.stop_training = control.gather = True
            models[0].optimizer.learning_rate = 0.125
        else:
            control.keep = True
        control.agree()

    on_each_rank(take_part, 2)
    assert [control.stop_training and control.gather and not control.keep for control in controls] == [True, True]
    assert [float(model.optimizer.learning_rate.value) for model in models] == [0.125, 0.125]


def test_a_schedule_is_left_alone():
    solo = Hosts.of(["solo:0"])
    model = made(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)))
    with closing(ProcessGroup(solo, 0, meet(solo, 0, b"test", 1.0), None, 1.0)) as replicas:
        Control(model, replicas).agree()
    assert float(model.optimizer.learning_rate) == 0.5


def test_what_was_told_before_is_not_told_again(on_each_rank):
    models = [made(keras.optimizers.SGD(0.5)) for _ in range(3)]

    def take_part(rank, replicas):
        control, seen = Control(models[rank], replicas), []
        for number in range(50):
            if rank == 0:
                control.keep, control.gather = number % 2 == 0, number % 3 == 0
                models[0].optimizer.learning_rate = 1 / (number + 1)
            control.agree(new_rates=number % 5 == 0)
            seen.append((control.keep, control.gather, float(models[rank].optimizer.learning_rate)))
        return seen

    first, *others = on_each_rank(take_part, 3)
    rates = [1 / (number - number % 5 + 1) for number in range(50)]
    assert [each[:2] for each in first] == [(number % 2 == 0, number % 3 == 0) for number in range(50)]
    for seen in others:
        assert [each[:2] for each in seen] == [each[:2] for each in first]
        assert [each[2] for each in seen] == pytest.approx(rates)


def test_one_worker_agrees_with_nobody():
    alone = SimpleNamespace(size=1, rank=0, channel=lambda *_: None)  # nothing else may be asked of it
    control = Control(made(keras.optimizers.SGD(0.5)), alone)
    control.keep = True
    control.agree()
    assert control.keep


def test_a_successor_takes_over_what_was_agreed_on(on_each_rank):
    models, controls = [made(keras.optimizers.SGD(0.5)) for _ in range(2)], [None, None]

    def take_part(rank, replicas):
        control = controls[rank] = Control(models[rank], replicas)
        if rank == 0:
            control.gather, models[0].optimizer.learning_rate = True, 0.125
        control.agree()

    on_each_rank(take_part, 2)
    solo, successor = Hosts.of(["solo:0"]), made(keras.optimizers.SGD(0.5))
    with closing(ProcessGroup(solo, 0, meet(solo, 0, b"test", 1.0), None, 1.0)) as replicas:
        control = Control(successor, replicas)
        control.restore(controls[1].state())
    assert (control.gather, control.keep, float(successor.optimizer.learning_rate.value)) == (True, False, 0.125)
    assert control.state()["rates"].tolist() == [0.125], "it tells the others the rate that they have"


def test_the_first_worker_tells_as_many_as_there_are_now():
    told, group = [], SimpleNamespace(size=2, rank=0, channel=lambda *_: None)

    def exchange(_, mine, places):
        told.append([len(mine[place]) for place in places])
        return [mine]

    group.exchange = exchange
    control = Control(made(keras.optimizers.SGD(0.5)), group)
    for group.size in (2, 3, 2):
        control.agree()
    length = told[0][0]
    assert told == [[length, 0], [length, 0, 0], [length, 0]]
