"""What replicas ask of JAX; steps of two replicas that have the same rows are Keras' own."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("in a process of its own: KERAS_BACKEND=jax", allow_module_level=True)

from functools import partial

import jax
import keras
import numpy as np
from keras import layers, ops

from dask_train.fitting.backends import backend_of, jax_step
from dask_train.fitting.checks import check_model, check_together
from dask_train.fitting.roles.applying import ApplyLast
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.gradients import RowFraction, summed_gradients
from dask_train.fitting.roles.metrics import Metrics
from dask_train.fitting.roles.reductions import losses_of_all
from dask_train.fitting.roles.rehearsal import learn_losses
from dask_train.fitting.roles.trackers import means_of_all
from dask_train.keras_models.serialization import model_to_parts

pytestmark = pytest.mark.backends

RNG = np.random.default_rng(0)
X = RNG.normal(size=(41, 8)).astype(np.float32)
Y, CLASS, WEIGHT = X[:, :2] * 2, X[:, :3].argmax(1), RNG.random(41).astype(np.float32)


class TwoAlike:
    """The sums of two replicas that have the same."""

    size, rank = 2, 0

    def channel(self, shapes, dtype, *, rounds=False):
        return None

    def sum(self, channel, arrays, weight=1.0):
        return [np.asarray(array) * 2 * weight for array in arrays]


class Looking(TwoAlike):
    """Two replicas, one of which looks at its model in each sum, as it does to give it to a worker that is new."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def sum(self, channel, arrays, weight=1.0):
        self.seen.append(model_to_parts(self.model, checksums=False)[1])
        return super().sum(channel, arrays, weight)


class OwnStep(keras.Model):
    """Takes its loss by a function, and tells what another one makes of it."""

    def __init__(self, reduce=ops.mean, told=lambda model, loss: {"squared": loss}):
        super().__init__()
        self.dense, self.reduce, self.told = layers.Dense(2), reduce, told
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, state, data):
        trained, others, optimizer, metrics = state

        def loss_of(trained):
            found, _ = self.stateless_call(trained, others, data[0])
            return self.reduce((found - data[1]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(trained)
        trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
        with keras.StatelessScope(list(zip(self.metrics_variables, metrics, strict=True))) as scope:
            self.seen.update_state(loss)
            told = self.told(self, loss)
        metrics = [scope.get_current_value(one) for one in self.metrics_variables]
        return told, (trained, others, optimizer, metrics)


class Adds(layers.Layer):
    """A loss by row, or one over all rows."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, inputs):
        self.add_loss(0.01 * self.reduce(ops.sum(ops.square(inputs), axis=-1)))
        return inputs


class OwnMetrics(keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {"a": ops.max(y_pred)}


def own_step(*args):
    model = OwnStep(*args)
    model(X[:1])
    model.compile("adam")
    return model


def classifier(optimizer="adam", reduction="sum_over_batch_size", **compiled):
    inner = [layers.Dense(5, "tanh"), layers.BatchNormalization()]
    model = keras.Sequential([layers.Input((8,)), *inner, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    model.compile(optimizer, loss, **compiled)
    return model


def regression(*more, loss="mse"):
    model = keras.Sequential([layers.Input((8,)), layers.Dense(4), *more, layers.Dense(2)])
    model.compile("sgd", loss)
    return model


def made(make):
    keras.utils.set_random_seed(3)
    model = make()
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "data"),
    [
        (lambda: classifier(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)), (X, CLASS)),
        (lambda: classifier("sgd", "mean_with_sample_weight"), (X, CLASS, WEIGHT)),
        (
            lambda: classifier(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 8.0)),
            (X, CLASS),
        ),
        (own_step, (X, Y)),
        (lambda: classifier(run_eagerly=True), (X, CLASS)),
    ],
    ids=["accumulated", "weighted mean", "scaled", "own step", "eager"],
)
def test_two_replicas_with_the_same_rows_train_what_one_process_does(make, data):
    wanted, model = made(make), made(make)
    wanted.fit(*data[:2], 16, 2, sample_weight=[*data, None][2], shuffle=False, verbose=0)
    backend, share, replicas, run = backend_of("jax"), RowFraction(), TwoAlike(), None
    with (
        summed_gradients(replicas, backend, share),
        losses_of_all(replicas, backend, share),
        means_of_all(backend, share),
    ):
        for start in [0, 16, 32] * 2:
            batch = tuple(jax.numpy.asarray(each[start : start + 16]) for each in data)
            share.weight, share.rows = 0.5, len(batch[0])
            run = run or backend.compiled(model.train_step, model, batch)
            run(batch)
    for one, other in zip(wanted.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_in_each_sum_of_a_step_a_model_is_as_it_was_before_the_step(run_eagerly):
    model = made(lambda: classifier("adam", "mean_with_sample_weight", run_eagerly=run_eagerly))
    backend, share, replicas, run = backend_of("jax"), RowFraction(), Looking(model), None
    last, mirrored = ApplyLast(backend, model, lambda: model.non_trainable_variables, lambda: mirrored.append(1)), []
    with summed_gradients(replicas, backend, share, last), losses_of_all(replicas, backend, share):
        for start in (0, 16):
            batch = tuple(jax.numpy.asarray(each[start : start + 16]) for each in (X, CLASS, WEIGHT))
            share.weight, share.rows = 0.5, 16
            run = run or backend.compiled(last.step(model.train_step), model, batch)
            before = model_to_parts(model, checksums=False)[1]
            run(batch)
            assert len(replicas.seen) >= 2, "of the loss's weights, and of gradients"
            for seen in replicas.seen:
                for one, other in zip(seen, before, strict=True):
                    np.testing.assert_array_equal(one, other)
            after = model_to_parts(model, checksums=False)[1]
            assert any((one != other).any() for one, other in zip(before, after, strict=True))
            replicas.seen.clear()
    assert len(mirrored) == 2


def tried(make, rows=41):
    """What is known of a step, once it was tried; nothing of it stays."""
    model, backend, share = made(make), backend_of("jax"), RowFraction()
    batch = (jax.numpy.asarray(X[:rows]), jax.numpy.asarray(Y[:rows]))
    share.weight, share.rows = 0.5, rows
    before = model.get_weights()
    with summed_gradients(TwoAlike(), backend, share), losses_of_all(TwoAlike(), backend, share):
        run = backend.compiled(model.train_step, model, batch)
        try:
            learn_losses(model, Metrics(model), backend, run, batch)
        finally:
            assert all((one == other).all() for one, other in zip(before, model.get_weights(), strict=True))
    return run


MEANS = {
    "own mean": own_step,
    "by row": lambda: regression(Adds(lambda rows: rows)),
    "a mean over rows": lambda: regression(Adds(ops.mean)),
    "a mean before statistics": lambda: regression(Adds(ops.mean), layers.BatchNormalization()),
    "beside what is known": lambda: regression(
        Adds(lambda rows: rows),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        loss=keras.losses.MeanSquaredError(reduction="sum"),
    ),
    "a function by row": lambda: regression(loss=lambda y, p: ops.mean(abs(y - p), axis=-1)),
    # These are no means; compiled losses are given the rows of all workers.
    "a function that sums": lambda: regression(loss=lambda y, p: ops.sum(abs(y - p))),
    "a function that compares rows": lambda: regression(loss=lambda y, p: ops.max(abs(y - p))),
}
OTHERS = {
    "own sum": lambda: own_step(ops.sum),
    "a root": lambda: own_step(lambda rows: ops.sqrt(ops.mean(rows))),
    "added sum": lambda: regression(Adds(ops.sum)),
    "a regularizer of activity": lambda: regression(layers.Dense(2, activity_regularizer=lambda x: ops.sum(x) ** 2)),
    "a regularizer that compares rows": lambda: regression(
        layers.Dense(2, activity_regularizer=keras.regularizers.OrthogonalRegularizer(1.0))
    ),
    "a mean beside statistics": lambda: regression(layers.BatchNormalization(), Adds(lambda rows: ops.mean(rows**2))),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", MEANS.values(), ids=list(MEANS))
def test_losses_that_are_means_over_rows_are_taken(make):
    tried(make)


@pytest.mark.slow
@pytest.mark.parametrize("make", OTHERS.values(), ids=list(OTHERS))
def test_losses_that_are_no_means_over_rows_are_refused(make):
    with pytest.raises(ValueError, match="has a loss of its own that is no mean over rows"):
        tried(make)


def test_one_row_is_tried_twice():
    tried(own_step, rows=1)
    with pytest.raises(ValueError, match="no mean over rows"):
        tried(lambda: own_step(ops.sum), rows=1)


@pytest.mark.parametrize("has_contexts", [True, False])
def test_functions_under_jit_are_traced_anew_for_steps_in_earnest(monkeypatch, has_contexts):
    if not has_contexts:
        monkeypatch.setattr(jax_step, "_traces_of", None)
    seen = []

    @jax.jit
    def reduce(rows):
        seen.append((is_aside(), type(rows).__name__))
        return ops.mean(rows)

    run = tried(lambda: own_step(reduce))
    assert {aside for aside, _ in seen} == {True}
    seen.clear()
    batch = jax.numpy.asarray(X), jax.numpy.asarray(Y)
    for _ in range(2):
        run(batch)
    assert [aside for aside, _ in seen] == [False], "traced once"
    tried(lambda: own_step(reduce))
    assert {aside for aside, _ in seen[1:]} == {True}, "and anew for another step"


class JittedStep(OwnStep):
    """Puts its step under ``jax.jit``, out of which gradients can't get."""

    @partial(jax.jit, static_argnums=0)
    def train_step(self, state, data):
        return super().train_step(state, data)


@pytest.mark.parametrize("eager", [False, True])
def test_a_step_under_jit_is_tried_as_it_is_written(eager):
    def made(reduce=ops.mean):
        model = JittedStep(reduce)
        model(X[:1])
        model.compile("adam", run_eagerly=eager)
        return model

    tried(made)
    with pytest.raises(ValueError, match="no mean over rows"):
        tried(lambda: made(ops.sum))


def test_logs_are_metrics_results_or_means():
    results = tried(lambda: own_step(ops.mean, lambda model, loss: {"seen": model.seen.result(), "loss": loss}))
    assert results.raw == {"loss"}
    nested = tried(lambda: own_step(ops.mean, lambda model, loss: {"all": {"seen": model.seen.result(), "loss": loss}}))
    assert nested.raw == {"loss"}
    for told in (lambda model, loss: {"root": model.seen.result() ** 0.5}, lambda model, loss: {"root": loss**0.5}):
        with pytest.raises(ValueError, match="logs 'root', which is neither what a metric says nor a mean over"):
            tried(lambda: own_step(ops.mean, told))  # noqa: B023 - called at once


def test_what_was_not_tried_is_refused():
    x = layers.Input((8,))
    model = OwnMetrics(x, layers.Dense(2)(x))
    model.compile("sgd", "mse")
    check_together(model, 1)
    with pytest.raises(ValueError, match="has a compute_metrics of its own"):
        check_together(model, 2)
    model = keras.Sequential([x, layers.JaxLayer(lambda params, inputs: inputs, init_fn=lambda rng, inputs: {})])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="has a JaxLayer"):
        check_together(model, 2)


def test_an_activity_regularizer_that_keras_adds_up_over_rows_is_refused(penalties_added_up):
    model = regression(layers.Dense(2, activity_regularizer="l2", name="penalised"))
    check_together(model, 1)
    with pytest.raises(ValueError, match=r"has layer 'penalised' with an activity_regularizer, which Keras .* adds up"):
        check_together(model, 2)
    check_together(regression(layers.Dense(2, kernel_regularizer="l2")), 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2, clipnorm=1.0),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1), 8.0, dynamic_growth_steps=3),
    ],
    ids=["averaged", "accumulated", "scaled"],
)
def test_a_server_applies_what_keras_does(make):
    """Also gradients that are infinite, which a loss scaler skips."""
    mine, wanted = ([keras.Variable(np.ones((3, 2))), keras.Variable(np.zeros(2))] for _ in range(2))
    optimizer, other = make(), make()
    optimizer.build(mine)
    other.build(wanted)
    arrays = [np.zeros(variable.shape, np.float32) for variable in mine]
    apply = backend_of("jax").applying(optimizer, mine, arrays)
    for step in range(6):
        for number, array in enumerate(arrays):
            array[...] = np.inf if (step == 2 and hasattr(other, "inner_optimizer")) else step - number - 1.5
        told = [variable.value for variable in other.variables], [variable.value for variable in wanted]
        found = other.stateless_apply(told[0], [jax.numpy.array(one) for one in arrays], told[1])
        apply([])
        for variable, value in zip([*wanted, *other.variables], [*found[0], *found[1]], strict=True):
            variable.assign(value)
        for one, another in zip([*mine, *optimizer.variables], [*wanted, *other.variables], strict=True):
            np.testing.assert_allclose(one.value, another.value, rtol=1e-6, err_msg=f"{one.path} in step {step}")


def test_float64_needs_jax_to_be_told():
    model = classifier()
    keras.config.set_floatx("float64")
    try:
        with pytest.raises(ValueError, match="Set JAX_ENABLE_X64=1 before jax is imported"):
            check_model(model)
    finally:
        keras.config.set_floatx("float32")


def test_values_come_through_in_every_dtype():
    for dtype in ("float32", "bfloat16", "float16", "int32"):
        tensor = jax.numpy.asarray([1.5, -2.0], dtype)
        for function in (lambda one: backend_of("jax").on_host(lambda a: [a[0] + a[0]], [one]), None):
            found = (function or jax.jit(lambda one: backend_of("jax").on_host(lambda a: [a[0] + a[0]], [one])))(tensor)
            assert found[0].dtype == dtype
            np.testing.assert_array_equal(found[0], tensor + tensor)


def test_a_step_begins_when_its_inputs_are_there():
    model = keras.Sequential([keras.Input((2000,)), layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    begun = []

    def step(given, batch):
        begun.append(all(leaf.is_ready() for leaf in jax.tree.leaves((given, batch))))
        return {}, given

    made = backend_of("jax").compiled(step, model, (np.ones((4, 2000), "f4"), np.ones((4, 1), "f4")))
    rows = jax.numpy.ones((2000, 2000))
    for _ in range(3):
        made(rows @ rows @ rows)  # which is computed in a thread of JAX
    assert begun == [True] * 3
