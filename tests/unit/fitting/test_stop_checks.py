"""Scores that a rule to stop by looks at: which are known before a model trains, and epochs as the history has them."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.fitting.stop_checks import check_stop_names, scores_of_model
from dask_train.run.stopping import check_stop
from dask_train.trainers.common.score_names import check_stop_told

X, Y = np.zeros((8, 4), "f4"), np.zeros((8, 1), "f4")


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


def test_scores_that_only_show_when_a_model_trains():
    assert scores_of_model(model(), [keras.callbacks.Callback()]) is None
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
    with pytest.raises(
        ValueError, match=r"looks at accuarcy, .* there are loss, accuracy\. Did you mean 'accuracy'\? Name one"
    ):
        check_stop_told(["accuarcy"], ["loss", "accuracy"])


def test_epochs_of_a_rule_are_those_of_the_history():
    settings = {"epochs": 9, "batch_size": 1, "workers": 0, "verbose": 0, "stop": "epoch >= 2"}
    of_torch = {"loss": torch.nn.MSELoss(), "optimizer": torch.optim.Adam}
    for found in (dt.fit(model(), X, Y, **settings), dt.fit(torch.nn.Linear(4, 1), X, Y, **of_torch, **settings)):
        assert found.epoch[:3] == [0, 1, 2]
        assert len(found.epoch) < 5  # the step in hand is of the next epoch
        assert "epoch is 2 >= 2" in found.stop_reason
