"""A fit whose number of workers follows the Dask workers: what is made of its arguments, and what is refused."""

from __future__ import annotations

from dataclasses import replace

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


def test_with_servers_lost_workers_are_replaced_alone_and_one_is_enough():
    given = with_bounds({"workers": (1, 4), "ps": 2})
    assert given == {"workers": 1, "ps": 2, "recovery": RecoveryPolicy(scope="role"), "follows": WorkerBounds(1, 4)}
    with pytest.raises(ValueError, match=r"a run has at least one worker. Pass workers=\(1, 4\)"):
        with_bounds({"workers": (0, 4), "ps": 2})


def test_with_servers_what_several_workers_can_not_do_is_refused_of_one_as_well():
    import keras

    import dask_train as dt

    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(synchronized=True)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="has synchronized=True"):
        dt.fit(model, np.zeros((64, 3)), np.zeros((64, 3)), workers=(1, 8), ps=1)


@pytest.mark.parametrize(
    ("settings", "resizes"),
    [({"workers": 1, "ps": 1}, False), ({"workers": 2, "ps": 1}, True), ({"workers": (1, 2), "ps": 1}, True)],
)
def test_one_that_trains_alone_with_servers_stays_alone(settings, resizes):
    import keras

    from dask_train.fitting.keras_models import KERAS_MODELS
    from dask_train.fitting.start import _checked

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    call = _checked(KERAS_MODELS, model, np.zeros((64, 3)), np.zeros(64), {"batch_size": 8, **settings})
    check = KERAS_MODELS.size_check(call)
    assert (check is not None) == resizes
    if check is not None:
        with pytest.raises(ValueError, match="9 workers share it"):
            check(9)


@pytest.mark.parametrize("one_host", [False, True])
def test_a_fixed_number_of_shares_is_for_workers_of_one_host(one_host):
    import torch

    from dask_train.fitting.start import _checked
    from dask_train.fitting.torch_module.api import MODULES

    settings = {"loss": torch.nn.CrossEntropyLoss(), "optimizer": torch.optim.Adam, "workers": (2, 4)}
    settings |= {"virtual_workers": 8} if one_host else {}
    call = _checked(MODULES, torch.nn.Linear(3, 2), np.zeros((64, 3)), np.arange(64) % 2, settings)
    assert MODULES.needs_one_host(call) == one_host


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
        ({"ps": 1, "recovery": "in_place"}, "needs recovery='role', and recovery='in_place' was passed"),
        ({"ps": 1, "recovery": None}, "needs recovery='role'"),
        ({"ps": 1, "streaming": True}, "streaming=True was passed"),
        ({"ps": 1, "batch_size": 7}, "batch_size=7 is the global batch, and 8 workers share it"),
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


def test_threads_for_servers_and_a_scorer_are_counted_before_it_begins(monkeypatch):
    import keras

    from dask_train.fitting import start
    from dask_train.fitting.keras_models import KERAS_MODELS

    asked = {}
    monkeypatch.setattr(start, "followed_workers", lambda *_, **given: asked.update(given) or 1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.zeros((64, 3)), np.zeros((64, 1))
    arguments = {"workers": (1, 8), "ps": 2, "scorer": 1, "validation_data": rows}
    call = start._checked(KERAS_MODELS, model, *rows, arguments)
    call = replace(call, run=replace(call.run, client=object()))
    assert start.number_to_begin_with(KERAS_MODELS, call) == 1
    assert asked == {"on_one_host": False, "beside": 3}
