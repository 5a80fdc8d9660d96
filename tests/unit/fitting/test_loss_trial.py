"""What several workers can't share out is refused before anything starts, where a few rows show it."""

from __future__ import annotations

import os
import random

import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("in a process of its own: KERAS_BACKEND=jax", allow_module_level=True)

import dask.array as da
import keras
import numpy as np
from keras import layers, ops

import dask_train as dt
from dask_train.fitting import loss_trial
from dask_train.fitting import start as api
from dask_train.fitting.roles import applying

pytestmark = pytest.mark.backends

X = np.random.default_rng(0).normal(size=(40, 8)).astype("f4")
Y = np.eye(2, dtype="f4")[X[:, :2].argmax(1)]
LAZY = da.from_array(X, chunks=10), da.from_array(Y, chunks=10)


class Started(Exception):  # noqa: N818 - an event
    """What was passed has been taken."""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """Nothing may be started."""

    def refuse(*_, **__):
        raise Started

    monkeypatch.setattr(api, "client_or_local", lambda *_: "a client")
    monkeypatch.setattr(api, "launch", refuse)


def fitted(loss, x=X, y=Y, *, first=None, compiled=False, **settings):
    class Computes(keras.Sequential):
        """Computes its loss by itself."""

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return loss(y, y_pred)

    keras.utils.set_random_seed(0)  # of some weights, few rows that are made up do not show a root
    inputs = first or [layers.Input((8,))]
    cls = keras.Sequential if compiled else Computes
    model = cls([*inputs, layers.Dense(4), layers.Dense(2, activation="softmax")])
    model.compile("sgd", loss if compiled else None)
    before, held, drawn = model.get_weights(), model.optimizer.variables, random.getstate()
    try:
        dt.fit(model, x, y, workers=2, batch_size=10, verbose=0, **settings)
    finally:
        assert random.getstate() == drawn, "the program's next model has the seeds that it would have had"
        assert all((one == other).all() for one, other in zip(before, model.get_weights(), strict=True))
        assert not any(hasattr(vars(cls)[name], "__wrapped__") for cls, name in applying._methods())
        assert all(one is other for one, other in zip(held, model.optimizer.variables, strict=False))


def root(y, p):
    return ops.sqrt(ops.mean((y - p) ** 2))


def summed(y, p):
    return ops.sum((y - p) ** 2)


def largest(y, p):
    return ops.max(abs(y - p))


def mean(y, p):
    return ops.mean(abs(y - p))


def by_share_of_targets(y, p):
    """A mean over rows of targets that are one of two, and none of targets that are anything."""
    return -ops.sum(y * ops.log(p)) / ops.sum(y)


def by_number_of_class(y, p):
    """Compares targets, of which made-up rows have a single one."""
    return ops.mean(p**2) / (1 + ops.std(y))


@pytest.mark.parametrize("loss", [root, summed, largest])
@pytest.mark.parametrize("data", [(X, Y), LAZY], ids=["here", "made up"])
def test_no_means_are_refused(loss, data):
    with pytest.raises(ValueError, match="has a loss of its own that is no mean over rows"):
        fitted(loss, *data)


@pytest.mark.parametrize("loss", [root, summed, largest])
def test_compiled_losses_are_given_all_rows(loss):
    with pytest.raises(Started):
        fitted(loss, compiled=True)


@pytest.mark.parametrize("loss", [mean, by_share_of_targets])
@pytest.mark.parametrize("data", [(X, Y), LAZY], ids=["here", "made up"])
def test_means_are_taken(loss, data):
    with pytest.raises(Started):
        fitted(loss, *data)


def contrasted(y, p, everyones, classes):
    """How near rows of its class are to each row, by row."""
    alike = ops.matmul(p, ops.transpose(everyones))
    same = ops.matmul(y, ops.transpose(classes))
    return ops.logsumexp(alike, axis=1) - ops.sum(same * alike, axis=1) / (1e-6 + ops.sum(same, axis=1))


def of_all_rows(y, p):
    everyones, classes = dt.keras.global_batch([p, y])
    return ops.mean(contrasted(classes, everyones, everyones, classes))


def summed_over_all_rows(y, p):
    everyones, classes = dt.keras.global_batch([p, y])
    return ops.sum(contrasted(classes, everyones, everyones, classes))


def against_all_rows(y, p):
    return ops.mean(contrasted(y, p, *dt.keras.global_batch([p, y])))


def summed_against_all_rows(y, p):
    return ops.sum(contrasted(y, p, *dt.keras.global_batch([p, y])))


def against_rows_of_its_share(y, p):
    return ops.mean(contrasted(y, p, p, y)) + ops.mean(dt.keras.global_batch(p) ** 2)


@pytest.mark.parametrize("loss", [of_all_rows, summed_over_all_rows, against_all_rows])
@pytest.mark.parametrize("data", [(X, Y), LAZY], ids=["here", "made up"])
def test_losses_of_gathered_rows_are_taken(loss, data):
    with pytest.raises(Started):
        fitted(loss, *data)


@pytest.mark.parametrize("loss", [summed_against_all_rows, against_rows_of_its_share])
@pytest.mark.parametrize("data", [(X, Y), LAZY], ids=["here", "made up"])
def test_losses_that_compare_other_rows_as_well_are_refused(loss, data):
    with pytest.raises(ValueError, match="has a loss of its own that is no mean over rows"):
        fitted(loss, *data)


def test_what_only_real_rows_show_is_left_to_workers():
    uneven = Y * np.linspace(1, 9, len(Y), dtype="f4")[:, None]
    with pytest.raises(ValueError, match="no mean over rows"):
        fitted(by_number_of_class, X, uneven)
    for settings in ({"x": LAZY[0], "y": da.from_array(uneven)}, {"x": X[:1], "y": Y[:1]}):
        with pytest.raises(Started):
            fitted(by_number_of_class, **settings)


def test_rows_that_a_model_is_not_for_refuse_nothing():
    """A table of a single row has no second one, and JAX gives NaN for it."""
    table = [layers.Input((3,), dtype="int32"), layers.Embedding(1, 2), layers.Flatten()]
    with pytest.raises(Started):
        fitted(mean, da.zeros((40, 3), dtype="i4", chunks=10), LAZY[1], first=table)

    def never(y, p):
        if isinstance(p.shape[0], int):  # and no symbol, as where shapes alone are looked at
            raise KeyError(p.shape)
        return ops.mean(p)

    with pytest.raises(Started):
        fitted(never)


def test_gradients_that_cancel_out_are_no_gradients():
    """What is added to all keys of an attention changes nothing."""
    attention = layers.Input((3, 8))
    inner = layers.MultiHeadAttention(2, 4)(attention, attention)
    with pytest.raises(Started):
        fitted(mean, X[:, None] + np.zeros((1, 3, 1), "f4"), Y, first=[keras.Model(attention, inner), layers.Flatten()])


def test_models_that_are_costly_to_copy_are_not(monkeypatch):
    monkeypatch.setattr(loss_trial, "_MOST_BYTES", 100)
    with pytest.raises(Started):
        fitted(summed)


def test_metrics_are_not_compiled_where_keras_logs_them(monkeypatch):
    found = []

    def tried(step, given, batch, *_, **__):
        found.append(step(given, batch))
        return frozenset()

    monkeypatch.setattr("dask_train.fitting.backends.jax_step.check_step", tried)
    with pytest.raises(Started):
        fitted(mean)
    assert [(one.logs, one.metrics, one.results) for one in found] == [({}, [], {})]
    assert len(found[0].gradients) == 4


def test_one_worker_takes_any_loss():
    model = keras.Sequential([layers.Input((8,)), layers.Dense(2)])
    model.compile("sgd", summed)
    with pytest.raises(Started):
        dt.fit(model, X, Y, workers=1, verbose=0)
