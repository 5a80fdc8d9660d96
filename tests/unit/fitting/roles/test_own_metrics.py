"""Metrics of a user's own are added up where they are sums, and refused where they are not."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from dask_train.data.columns import Columns
from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.applying import at_every_apply
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics
from dask_train.fitting.roles.own_metrics import check_sums_in_steps
from dask_train.fitting.roles.steps import BatchFeed, Rank, Steps
from dask_train.fitting.roles.weights import value_of

TENSORFLOW = backend_of("tensorflow")
X = np.random.default_rng(1).normal(size=(6, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


class Keeping(keras.metrics.Metric):
    """One number, which errors are brought into somehow."""

    first = 0.0

    def __init__(self):
        super().__init__(name="keeping")
        self.value = self.add_variable((), keras.initializers.Constant(self.first), name="value")

    def update_state(self, y, y_pred, sample_weight=None):
        self.value.assign(self.brought(keras.ops.abs(y - y_pred)))

    def result(self):
        return self.value

    def reset_state(self):
        self.value.assign(self.first)


class Total(Keeping):
    def brought(self, errors):
        return self.value + keras.ops.sum(errors)


class Largest(Keeping):
    def brought(self, errors):
        return keras.ops.maximum(self.value, keras.ops.max(errors))


class LargestOfAll(Largest):
    first = -np.inf


class Smallest(Keeping):
    first = np.inf

    def brought(self, errors):
        return keras.ops.minimum(self.value, keras.ops.min(errors))


class Last(Keeping):
    def brought(self, errors):
        return keras.ops.mean(errors)


class OwnStep(keras.Model):
    """Its metric is its own, and counted by its own step; the step draws random numbers and assigns."""

    def __init__(self, metric):
        super().__init__()
        self.dense, self.drop = layers.Dense(1), layers.Dropout(0.5, seed=1)
        self.norm, self.own = layers.BatchNormalization(), metric
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        return self.dense(self.drop(self.norm(x, training=training), training=training))

    def train_step(self, data):
        self.count.assign_add(1.0)
        self.own.update_state(data[1], self(data[0], training=True))
        return {**super().train_step(data), "own": self.own.result()}


def compiled(metric, eagerly=False):
    model = keras.Sequential([layers.Input((3,)), layers.Dropout(0.5, seed=1), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(momentum=0.5), "mse", metrics=[metric], run_eagerly=eagerly)
    return model


def eager(metric):
    return compiled(metric, eagerly=True)


def own_step(metric):
    model = OwnStep(metric)
    model.compile(keras.optimizers.SGD(momentum=0.5), "mse")
    model(X)
    return model


MODELS = [compiled, eager, own_step]


def steps_of(model, *, adds_metrics=True, targets=(Y,)):
    """The steps of a worker of several, on one batch for each of the targets."""
    batches = iter([(keras.ops.array(X), keras.ops.array(y)) for y in targets])
    rank = Rank(
        session=SimpleNamespace(global_rows=len(X)),
        backend=TENSORFLOW,
        model=model,
        share=RowFraction(),
        weights=None,
        metrics=Metrics(model),
        adds_metrics=adds_metrics,
    )
    feed = BatchFeed(
        batches=batches, num_in_call=lambda: 1, columns=Columns(features=0, labels=1), some_row=lambda: None
    )
    return Steps(rank, feed, model.train_step, lambda told, ends: told.values)


@pytest.mark.parametrize("made", MODELS)
@pytest.mark.parametrize("metric", [Largest, LargestOfAll, Smallest, Last])
def test_what_is_no_sum_is_refused_before_a_step_is_taken(made, metric):
    model = made(metric())
    before = [np.array(value_of(variable)) for variable in (*model.variables, *model.optimizer.variables)]
    with pytest.raises(ValueError, match=rf"'keeping' of class {metric.__name__} does not count sums over rows"):
        steps_of(model)(None)
    after = [np.array(value_of(variable)) for variable in (*model.variables, *model.optimizer.variables)]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=False))


class Worst(Keeping):
    """Knows nothing of a batch without positive targets."""

    def update_state(self, y, y_pred, sample_weight=None):
        self.value.assign(self.brought(keras.ops.where(y > 0, 1.0 + keras.ops.abs(y - y_pred), 0.0)))


class WorstOfAll(Worst, Largest):
    """No sum."""


class WorstTogether(Worst, Total):
    """A sum."""


POSITIVE, NONE = np.abs(Y), np.zeros_like(Y)


@pytest.mark.parametrize("made", [compiled, own_step])
def test_what_is_no_sum_is_refused_with_the_first_batch_that_shows_it(made):
    steps = steps_of(made(WorstOfAll()), targets=[NONE, NONE, POSITIVE])
    steps(None)
    steps(None)
    with pytest.raises(ValueError, match="'keeping' of class WorstOfAll does not count sums over rows"):
        steps(None)


@pytest.fixture
def num_steps_before_checks(monkeypatch):
    """Collects how many steps were taken before each check; ``found`` is what checks return, if it is set."""
    it = SimpleNamespace(steps=0, checks=[], found=None)

    def check(*args, **kwargs):
        it.checks.append(it.steps)
        return check_sums_in_steps(*args, **kwargs) if it.found is None else it.found

    monkeypatch.setattr("dask_train.fitting.roles.steps.check_sums_in_steps", check)
    return it


def test_metrics_are_checked_again_with_the_first_batch_of_which_they_count_something(num_steps_before_checks):
    results = []
    for adds_metrics in (True, False):
        keras.utils.set_random_seed(2)
        model = eager(WorstTogether())
        model.optimizer.build(model.trainable_variables)
        steps = steps_of(model, adds_metrics=adds_metrics, targets=[NONE, NONE, POSITIVE, NONE, POSITIVE])
        for num_steps_before_checks.steps in range(5):
            results.append(float(steps(None)["keeping"]))
    assert num_steps_before_checks.checks == [0, 2]
    assert results[:5] == results[5:], "checks leave nothing behind"
    assert results[1] == 0.0 < results[2]


def test_checks_that_show_nothing_end(num_steps_before_checks):
    num_steps_before_checks.found = {0}
    steps = steps_of(eager(Total()), targets=[Y] * 15)
    for num_steps_before_checks.steps in range(15):
        steps(None)
    assert num_steps_before_checks.checks == list(range(11))


class Sometimes(Total):
    """Each third batch counts."""

    calls = 0

    def update_state(self, y, y_pred, sample_weight=None):
        self.calls += 1
        if self.calls % 3 == 0:
            super().update_state(y, y_pred)


def test_checks_leave_numbers_of_python_in_metrics_as_they_are():
    metric = Sometimes()
    steps = steps_of(eager(metric), targets=[Y] * 7)
    for _ in range(7):
        steps(None)
    assert metric.calls == 7


def test_the_step_of_further_checks_is_compiled_once(monkeypatch):
    compilations, compiled_by = [], type(TENSORFLOW).compiled

    def counted(*args, **kwargs):
        compilations.append(1)
        return compiled_by(*args, **kwargs)

    monkeypatch.setattr(type(TENSORFLOW), "compiled", counted)
    steps = steps_of(eager(Sometimes()), targets=[Y] * 7)
    for _ in range(7):
        steps(None)
    assert len(compilations) == 3, "the step itself, the first check, and those after the third and the sixth step"


@pytest.mark.parametrize("made", MODELS)
def test_a_sum_is_counted_as_if_nobody_had_looked(made):
    found = []
    for adds_metrics in (True, False):
        keras.utils.set_random_seed(2)
        model = made(Total())
        model.optimizer.build(model.trainable_variables)
        logs = steps_of(model, adds_metrics=adds_metrics)(None)
        numbers = [np.array(value_of(variable)) for variable in (*model.variables, *model.optimizer.variables)]
        found.append([*numbers, *(np.asarray(value) for _, value in sorted(logs.items()))])
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def stepping(model):
    """Makes the step that is tried."""
    return partial(TENSORFLOW.compiled, model.train_step, model, (X, Y))


def test_a_step_that_is_tried_asks_nobody():
    """Nor does it apply anything, whoever holds the optimizer."""
    asked = []
    model = compiled(Total())
    model.optimizer.build(model.trainable_variables)
    with at_every_apply(lambda *_: asked.append(1)):
        check_sums_in_steps(model, Metrics(model), TENSORFLOW, stepping(model), (X, Y), compiled=True)
    assert not asked
    assert int(model.optimizer.iterations) == 0


class Decorated(OwnStep):
    """Its step calls a function that TensorFlow has traced."""

    @tf.function
    def train_step(self, data):
        if tf.reduce_sum(data[0]) > -1e9:  # which AutoGraph makes an operation of
            self.own.update_state(data[1], self(data[0], training=True))
        return {**self.updated(data), "own": self.own.result()}

    @tf.function
    def updated(self, data):
        return keras.Model.train_step(self, data)


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_step_that_the_user_has_decorated_trains_after_it_was_tried(eagerly):
    model = Decorated(Total())
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=eagerly)
    model(X)
    before = np.array(model.dense.kernel)
    with at_every_apply(lambda optimizer, gradients, variables, go_on: go_on(gradients)):
        steps_of(model)(None)
    assert int(model.optimizer.iterations) == 1
    assert not np.array_equal(before, model.dense.kernel)
    assert not tf.config.functions_run_eagerly()


def test_a_metric_that_begins_with_infinity_counts_where_it_is_alone():
    model = compiled(LargestOfAll())
    model.evaluate(X, Y, verbose=0)
    metrics = Metrics(model)
    expected = model.get_metrics_result()["keeping"]
    counted = metrics.counted()
    metrics.set(None)
    assert np.isneginf(model.get_metrics_result()["keeping"])
    metrics.set(counted)
    assert model.get_metrics_result()["keeping"] == expected


def test_compiled_metrics_that_are_given_all_rows_need_be_no_sums():
    model = compiled(Largest())
    given = model, Metrics(model), TENSORFLOW, stepping(model), (X, Y)
    check_sums_in_steps(*given, compiled=False)
    with pytest.raises(ValueError, match="does not count sums over rows"):
        check_sums_in_steps(*given, compiled=True)
