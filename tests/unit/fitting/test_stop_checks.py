"""Scores that a rule to stop by looks at: which are known before a model trains, and epochs as the history has them."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.checkpoint.policy import Checkpoint
from dask_train.fitting.stop_checks import (
    check_best_name,
    check_monitored,
    check_one_number,
    check_stop_names,
    of_several_classes,
    scores_of_model,
)
from dask_train.run.stopping import check_stop
from dask_train.trainers.common.score_names import check_stop_told

X, Y = np.zeros((8, 4), "f4"), np.zeros((8, 1), "f4")
TORCH = {"loss": torch.nn.MSELoss(), "optimizer": torch.optim.Adam}


def own(y_true, y_pred):
    return keras.ops.mean(y_true - y_pred, axis=-1)


def model(metrics=(), **compiled):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", metrics=list(metrics), **compiled)
    return made


class Stepping(keras.Sequential):
    """Takes steps of its own, whose logs may be any."""

    def train_step(self, data):
        return super().train_step(data)


class Several(keras.metrics.Mean):
    """Gives scores by names of its own."""

    def result(self):
        return {"low": super().result(), "high": super().result()}


class Telling(keras.callbacks.Callback):
    """May add logs of its own."""


@pytest.mark.parametrize(
    ("metrics", "weighted"),
    [
        ([], None),
        (["mae", "acc", own, keras.metrics.AUC(name="area")], None),
        (["accuracy"], ["mse"]),
        ([[keras.metrics.MeanAbsoluteError()]], None),
    ],
)
def test_scores_that_a_compiled_model_is_known_to_give_are_those_of_its_history(metrics, weighted):
    made = model(metrics, weighted_metrics=weighted)
    assert scores_of_model(made, []) == set(made.fit(X, Y, verbose=0).history)


def test_callbacks_of_keras_add_the_learning_rate_alone():
    made = model(["mae"])
    callbacks = [keras.callbacks.ReduceLROnPlateau("loss"), keras.callbacks.EarlyStopping("loss")]
    assert scores_of_model(made, callbacks) == set(made.fit(X, Y, verbose=0, callbacks=callbacks).history)
    check_stop_names(check_stop("learning_rate < 1"), validates=True, known={"loss", "learning_rate"})
    with pytest.raises(ValueError, match=r"scores are learning_rate, loss, val_loss\."):
        check_stop_names(check_stop("val_learning_rate < 1"), validates=True, known={"loss", "learning_rate"})


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.EarlyStopping("val_los", mode="min"),
        keras.callbacks.ReduceLROnPlateau("val_los"),
        keras.callbacks.ModelCheckpoint("x.keras", "val_los", save_best_only=True),
    ],
)
def test_a_callback_that_looks_at_a_log_which_never_comes_is_refused_before_anything_starts(callback):
    says = r"monitor='val_los', and .* loss, val_loss\. Did you mean 'val_loss'\?"
    with pytest.raises(ValueError, match=f"{type(callback).__name__} has {says}"):
        dt.fit(model(), X, Y, validation_data=(X, Y), callbacks=[callback], workers=2)


def test_monitors_that_are_known_or_are_not_to_be_known():
    stopping = keras.callbacks.EarlyStopping
    check_monitored([stopping("val_loss"), stopping("loss")], {"loss"}, validates=True)
    check_monitored([stopping("val_loss")], {"loss"}, validates=False)  # a warning, as in Keras
    check_monitored([stopping("los")], None, validates=True)
    check_monitored([keras.callbacks.ModelCheckpoint("x.keras", "los")], {"loss"}, validates=True)  # keeps each epoch
    with pytest.raises(ValueError, match=r"monitor='los', and the model's logs are loss\. Did you mean 'loss'\?"):
        check_monitored([stopping("los")], {"loss"}, validates=False)


@pytest.mark.parametrize(
    ("made", "given"), [(model, {}), (lambda: torch.nn.Linear(4, 1), TORCH)], ids=["keras", "torch"]
)
def test_a_score_of_the_best_checkpoint_that_never_comes_is_refused_before_anything_starts(tmp_path, made, given):
    check_best_name(Checkpoint(tmp_path, best="los"), None, validates=True)
    with pytest.raises(ValueError, match=r"known by 'val_los', and .*loss, val_loss\. Did you mean 'val_loss'\?"):
        dt.fit(made(), X, Y, validation_data=(X, Y), checkpoint=Checkpoint(tmp_path, best="val_los"), **given)


def of_classes(metric, outputs=3):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(outputs)])
    made.compile("sgd", "mse", metrics=[metric])
    return made


@pytest.mark.parametrize(
    ("metric", "argument"),
    [
        (keras.metrics.F1Score(name="f1"), "average='macro'"),
        (keras.metrics.FBetaScore(name="f1"), "average='macro'"),
        (keras.metrics.R2Score(name="f1", class_aggregation=None), "class_aggregation='uniform_average'"),
    ],
)
def test_a_score_with_a_number_for_each_class_is_refused_where_one_number_is_compared(tmp_path, metric, argument):
    best, stopping = Checkpoint(tmp_path, best="f1"), keras.callbacks.EarlyStopping("val_f1", mode="max")
    says = f"has a number for each class, and .* it, which takes one number. Pass {argument} to that metric"
    for rule, checkpoint, callbacks in (("val_f1 > 0.9", None, []), (None, best, []), (None, None, [stopping])):
        with pytest.raises(ValueError, match=says):
            check_one_number(of_classes(metric), check_stop(rule), checkpoint, callbacks)
    y = np.zeros((8, 3), "f4")
    with pytest.raises(ValueError, match=rf"^val_f1 {says}"):
        dt.fit(of_classes(metric), X, y, validation_data=(X, y), stop=dt.Patience("val_f1", 3), workers=2)
    check_one_number(of_classes(metric), check_stop("val_loss < 1"), Checkpoint(tmp_path), [])
    check_one_number(of_classes(metric, outputs=1), check_stop("f1 > 0.9"), best, [stopping])


@pytest.mark.parametrize("metric", [keras.metrics.F1Score("macro", name="f1"), keras.metrics.R2Score(name="f1")])
def test_a_mean_over_classes_is_one_number(metric):
    check_one_number(of_classes(metric), check_stop("f1 > 0.9"), None, [])
    assert of_several_classes(of_classes(metric)) == {}


def test_scores_that_only_show_when_a_model_trains():
    assert scores_of_model(model(), [Telling()]) is None
    assert scores_of_model(model(), [keras.callbacks.LambdaCallback()]) is None
    assert scores_of_model(model([keras.metrics.AUC(name="a"), keras.metrics.AUC(name="a")]), []) is None
    assert scores_of_model(model([Several(name="several")]), []) is None
    assert scores_of_model(model([keras.metrics.MeanAbsoluteError]), []) is None, "a class, which Keras makes one of"
    stepping = Stepping([keras.Input((4,)), keras.layers.Dense(1)])
    stepping.compile("sgd", "mse")
    assert scores_of_model(stepping, []) is None


@pytest.mark.parametrize("stop", ["loss < 1", "time_metric < 1 or val_time < 1", "epoch > 3 or steps > 2", None])
def test_names_that_are_known(stop):
    check_stop_names(check_stop(stop), validates=True, known={"loss", "time"})
    check_stop_names(check_stop(stop), validates=True)


def test_names_that_are_not_known():
    with pytest.raises(ValueError, match=r"looks at val_los, and .* loss, val_loss\. Did you mean 'val_loss'"):
        check_stop_names(check_stop("val_los < 1"), validates=True, known={"loss"})
    with pytest.raises(ValueError, match="val_loss, which nothing computes"):
        check_stop_names(check_stop("val_loss < 1"), validates=False, known={"loss"})


def test_names_that_an_epoch_has_not_told():
    check_stop_told(["loss", "epoch", "val_acc"], ["loss", "acc"])  # not validated in this epoch
    with pytest.raises(ValueError, match=r"looks at val_los, and after the first round there are logloss"):
        check_stop_told(["val_los"], ["logloss"], "round")
    with pytest.raises(
        ValueError, match=r"looks at accuarcy, .* there are loss, accuracy\. Did you mean 'accuracy'\? Name one"
    ):
        check_stop_told(["accuarcy"], ["loss", "accuracy"])


def test_epochs_of_a_rule_are_those_of_the_history():
    settings = {"epochs": 9, "batch_size": 1, "workers": 0, "verbose": 0, "stop": "epoch >= 2"}
    for found in (dt.fit(model(), X, Y, **settings), dt.fit(torch.nn.Linear(4, 1), X, Y, **TORCH, **settings)):
        assert found.epoch[:3] == [0, 1, 2]
        assert len(found.epoch) < 5  # the step in hand is of the next epoch
        assert "epoch is 2 >= 2" in found.stop_reason
