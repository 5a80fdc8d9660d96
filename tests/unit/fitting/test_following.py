"""A fit whose number of workers follows the Dask workers: what is made of its arguments, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.driver.settings import DEFAULT, RunSettings
from dask_train.fitting.start import check_most, with_bounds
from dask_train.run.bounds import WorkerBounds
from dask_train.run.recovery import RecoveryPolicy


def test_a_single_number_stays_as_it_is():
    given = {"workers": 3, "recovery": None, "ps": 2}
    assert with_bounds(given) == given
    check_most(RunSettings(), 1)


@pytest.mark.parametrize("recovery", [{}, {"recovery": DEFAULT}, {"recovery": "in_place"}])
def test_two_numbers_replace_lost_workers_in_place(recovery):
    given = with_bounds({"workers": [2, 8], "epochs": 3, **recovery})
    assert given == {
        "workers": 2,
        "epochs": 3,
        "recovery": RecoveryPolicy(scope="in_place"),
        "follows": WorkerBounds(2, 8),
    }
    check_most(RunSettings.of(given), 8)
    with pytest.raises(ValueError, match="batch_size=7 is the global batch, and 8 workers share it"):
        check_most(RunSettings.of(given), 7)


def test_a_policy_of_ones_own_is_kept():
    policy = RecoveryPolicy(scope="in_place", max_restarts=9)
    assert with_bounds({"workers": (2, 8), "recovery": policy})["recovery"] is policy


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"recovery": None}, r"workers=\(2, 8\) needs recovery='in_place', and recovery=None was passed"),
        ({"recovery": "gang"}, "recovery='gang' was passed"),
        ({"recovery": RecoveryPolicy()}, "needs recovery='in_place'"),
        ({"streaming": True}, "streaming=True was passed"),
        ({"ps": 1}, "ps=1 was passed. Leave ps= out"),
        ({"scorer": 1, "validation_data": (np.zeros((8, 3)), np.zeros(8))}, "scorer=1 was passed"),
    ],
)
def test_what_does_not_go_with_them(settings, why):
    import keras

    import dask_train as dt

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=why):
        dt.fit(model, np.zeros((64, 3)), np.zeros(64), workers=(2, 8), **settings)


def test_fit_refuses_them_before_anything_starts():
    import torch

    import dask_train as dt
    from dask_train.linear_model import LogisticRegression

    rows, targets = np.zeros((64, 3)), np.arange(64) % 2
    with pytest.raises(ValueError, match="two numbers are for torch modules and Keras models"):
        dt.fit(LogisticRegression(), rows, targets, workers=(2, 8))
    of_torch = {"loss": torch.nn.CrossEntropyLoss(), "optimizer": torch.optim.Adam}
    for settings, why in (({"batch_size": 7}, "8 workers share it"), ({"recovery": None}, "needs recovery='in_place'")):
        with pytest.raises(ValueError, match=why):
            dt.fit(torch.nn.Linear(3, 2).double(), rows, targets, workers=(2, 8), **of_torch, **settings)
