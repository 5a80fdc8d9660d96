"""The first worker of an asynchronous fit, which waits for the others."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from dask_train.fitting.roles import asynchronous
from dask_train.fitting.roles.asynchronous import AsynchronousWorker
from dask_train.fitting.roles.control import Flags
from dask_train.fitting.roles.metrics import Metrics, StepLogs
from dask_train.fitting.roles.worker import Worker
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.sync_point import LeftError

THREE = WorkerCounts(((0, 3),))


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


def waiting(clock, answers, *, stops=lambda: False, counts=THREE):
    """Worker 0 of three, whose servers answer so, after as long as they may wait."""

    def ended(_, wait_s):
        clock.now += wait_s
        return answers()

    worker = object.__new__(AsynchronousWorker)
    worker.notes = []
    worker.session = SimpleNamespace(size=3, should_stop=stops, _link=SimpleNamespace(note=worker.notes.append))
    worker.servers = SimpleNamespace(ended=ended, counts=counts)
    return worker


def waited_for(clock, answers, counts=THREE):
    """What a diagnosis says of worker 0, which waits until the run is stopped after an hour."""
    stops_at = clock.now + 3600
    worker = waiting(clock, answers, counts=counts, stops=lambda: clock.now >= stops_at)
    worker._wait_for_others()
    assert clock.now > stops_at
    (note,) = set(worker.notes)
    return note


def test_workers_that_take_no_step_are_named_and_the_run_says_how_long_they_may(clock):
    """They may wait for room, with which the run starts them again."""
    note = waited_for(clock, lambda: ({0, 1}, {0: 9, 1: 9, 2: 4}))
    assert note == "past its last batch, waiting for worker 2"


def test_a_slow_worker_is_waited_for(clock):
    worker = waiting(clock, lambda: ({0, 1} if clock.now < 60 else {0, 1, 2}, {2: int(clock.now)}))
    worker._wait_for_others()
    assert clock.now >= 60


def test_one_that_has_left_is_not_waited_for_and_one_that_has_not_begun_is(clock):
    shrunk = THREE.then(10, 2)
    waiting(clock, lambda: ({0, 1}, {0: 20, 1: 20, 2: 10}), counts=shrunk)._wait_for_others()
    assert waited_for(clock, lambda: ({0, 1}, {0: 20, 1: 20, 2: 9}), shrunk).endswith("waiting for worker 2")
    assert waited_for(clock, lambda: ({0, 1, 2}, {}), THREE.then(10, 4)).endswith("waiting for worker 3")


def test_a_run_that_stops_waits_for_last_steps_only(clock):
    worker = waiting(clock, lambda: ({0}, {}), stops=lambda: True)
    worker._wait_for_others()
    assert clock.now < 5


@pytest.mark.parametrize("is_stopping", [False, True])
def test_worker_0_tells_why_callbacks_have_ended_training_without_stopping_the_run(is_stopping):
    """A run that stops kills all after some seconds, and the model may take longer to be written and sent."""
    worker = object.__new__(AsynchronousWorker)
    worker.leads, worker.model = True, SimpleNamespace(stop_training=True)
    worker.session = SimpleNamespace(should_stop=lambda: is_stopping)
    known = {"steps": 5, "read": [], "num_rows": 8, "warnings": [], "num_steps": 2, "applied": {}}
    made = Outcome(header={}, history={}, epoch=[], all_reduce_s=0.0, waiting_s=0.0, **known)
    worker.loop = SimpleNamespace(outcome=lambda _: made, held={"counted": {}, "steps": {0: 5, 1: 4}})
    worker.servers = SimpleNamespace(counts=SimpleNamespace(num_taken=lambda steps: sum(steps.values())))
    worker._last = StepLogs({})
    worker.handed_over = lambda outcome: outcome
    outcome = worker.outcome(SimpleNamespace(epoch=1))
    assert outcome.stop_reason == ("" if is_stopping else "a callback stopped training in epoch 2")
    assert outcome.steps == 9


@pytest.mark.parametrize("joins_again", [True, False])
def test_a_worker_that_has_left_enters_fit_again_for_its_next_share(monkeypatch, joins_again):
    calls, began = [], []

    def fit(self, callbacks, validation):
        calls.append((callbacks, validation))
        if len(calls) == 1:
            raise LeftError

    monkeypatch.setattr(Worker, "_fit_to_the_end", fit)
    worker = object.__new__(AsynchronousWorker)
    worker.loop = SimpleNamespace(rejoin=lambda: joins_again)
    worker._begin_step = lambda: began.append(len(calls))
    if joins_again:
        worker._fit_to_the_end("callbacks", None)
        assert (calls, began) == ([("callbacks", None)] * 2, [1])
    else:
        with pytest.raises(LeftError):
            worker._fit_to_the_end("callbacks", None)
        assert (len(calls), began) == (1, [])


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


@pytest.mark.parametrize(("counted", "shown"), [([6.0, 4.0], 1.5), (None, np.nan)])
def test_an_epoch_whose_last_batch_leaves_worker_0_without_rows_has_the_loss_of_all_rows(counted, shown):
    """Keras takes an epoch's logs from metrics, which hold 0 where nothing is counted."""
    x = keras.layers.Input((2,))
    worker = object.__new__(AsynchronousWorker)
    worker.model = keras.Model(x, keras.layers.Dense(1)(x))
    worker.model.compile("sgd", "mse")
    logs = worker.model.train_on_batch(np.ones((3, 2)), np.ones((3, 1)), return_dict=True)
    answer = {"counted": counted, "scales": [None], "stop": False, "version": 0}
    sent = []
    worker.leads, worker.session = True, SimpleNamespace(rank=0, size=2)
    worker.metrics, worker._flags = Metrics(worker.model), Flags()
    worker.loop = SimpleNamespace(
        position=SimpleNamespace(epoch=2, steps=7), count_step=lambda: None, ends_epoch=True, begins_last=False
    )
    worker.share = SimpleNamespace(weight=0.0)
    worker.pushing = SimpleNamespace(begin_step=lambda step, looks: None)
    worker.servers = SimpleNamespace(
        step=lambda **told: sent.append(told["counted"]) or ([], answer), take_others=lambda: False
    )
    worker.moment = SimpleNamespace(ending=[])
    worker._assign = lambda weights: None
    np.testing.assert_allclose(worker.stepped(StepLogs(logs), ends=True)["loss"], shown)
    np.testing.assert_allclose(worker.model.get_metrics_result()["loss"], shown)
    assert sent == [(2, None)]


def test_steps_before_a_worker_has_joined_are_none_of_its_own():
    @dataclass
    class Left:
        steps: int = 0

    worker = object.__new__(AsynchronousWorker)
    worker.leads, worker.model = True, SimpleNamespace(stop_training=False)
    worker.servers = SimpleNamespace(counts=WorkerCounts(((0, 1), (100, 2), (150, 1))))
    worker.loop = SimpleNamespace(outcome=lambda _: Left(), held={"steps": {0: 200, 1: 150}, "counted": {}})
    worker._count_all_rows, worker.handed_over = (lambda *_: None), (lambda outcome: outcome)
    assert worker.outcome(None).steps == 250
