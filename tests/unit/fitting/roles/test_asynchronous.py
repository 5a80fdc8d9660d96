"""The first worker of an asynchronous fit, which waits for the others."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import pytest

from dask_train.errors import StalledError
from dask_train.fitting.roles import asynchronous
from dask_train.fitting.roles.asynchronous import AsynchronousWorker


class Clock:
    """Time that goes by where somebody waits."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(asynchronous, "time", made)
    return made


def waiting(clock, answers, *, stops=lambda: False):
    """Worker 0 of three, whose servers answer so, after as long as they may wait."""

    def ended(_, wait_s):
        clock.now += wait_s
        return answers()

    worker = object.__new__(AsynchronousWorker)
    worker.task = SimpleNamespace(collective_timeout_s=10.0)
    worker.session = SimpleNamespace(size=3, should_stop=stops)
    worker.servers = SimpleNamespace(ended=ended)
    return worker


def test_workers_that_take_no_step_are_named(clock):
    worker = waiting(clock, lambda: ({0, 1}, {0: 9, 1: 9, 2: 4}))
    with pytest.raises(StalledError, match="waits for worker 2, which has taken no step for 10 s"):
        worker._wait_for_others()
    assert 10.0 < clock.now < 11.0


def test_a_slow_worker_is_waited_for(clock):
    worker = waiting(clock, lambda: ({0, 1} if clock.now < 60 else {0, 1, 2}, {2: int(clock.now)}))
    worker._wait_for_others()
    assert clock.now >= 60


def test_a_run_that_stops_waits_for_last_steps_only(clock):
    worker = waiting(clock, lambda: ({0}, {}), stops=lambda: True)
    worker._wait_for_others()
    assert clock.now < 5


class Computes(keras.Model):
    """Computes its loss by itself."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(y_pred)


@pytest.mark.parametrize(
    ("kind", "loss", "told"),
    [
        (keras.Model, "mse", []),
        (keras.Model, keras.losses.Circle(name="circle"), ["Loss 'circle' is computed of each worker's own share"]),
        (Computes, None, ["in its own train_step or compute_loss are computed of each worker's own share"]),
    ],
)
def test_losses_of_shares_are_told_of(kind, loss, told):
    x = keras.layers.Input((2,))
    worker, notices = object.__new__(AsynchronousWorker), []
    worker.model = kind(x, keras.layers.Dense(1)(x))
    worker.model.compile("sgd", loss)
    worker.session = SimpleNamespace(notice=notices.append)
    worker._notice_shares()
    assert len(notices) == len(told)
    assert all(part in notice for part, notice in zip(told, notices, strict=True))
