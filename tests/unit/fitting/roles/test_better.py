"""Which of two scores is the better one, as Keras' own callbacks have it."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from dask_train.fitting.roles.loop import mode_of


@pytest.fixture(scope="module")
def model():
    """One that has taken a step: only then Keras has its metrics."""
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "sigmoid")])
    made.compile(loss="mse", metrics=["mae", keras.metrics.AUC(name="auc")], run_eagerly=True)
    made.train_on_batch(np.zeros((2, 2)), np.array([[0.0], [1.0]]))
    return made


@pytest.mark.parametrize(
    ("name", "mode"),
    [("loss", "min"), ("val_loss", "min"), ("mae", "min"), ("auc", "max"), ("val_auc", "max")],
)
def test_it_is_known_of_what_keras_knows(model, name, mode):
    assert mode_of(model, name) == mode


def test_a_score_of_which_keras_can_not_tell_is_refused(model):
    with pytest.raises(ValueError, match=r"by 'no_such_score', and Keras can't tell .* Pass mode='min' or mode='max'"):
        mode_of(model, "no_such_score")
