"""Arguments that are no number, no flag or no name are refused in words by every verb, before anything is started."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import dask.array as da
import keras
import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from sklearn.linear_model import Ridge, SGDRegressor

import dask_train as dt
from dask_train import linear_model, sklearn
from dask_train.cluster import clients
from dask_train.fitting.start import fit_function
from dask_train.fitting.torch_module.api import MODULES, evaluate_module
from dask_train.fitting.trees.lightgbm_api import LIGHTGBM
from dask_train.fitting.trees.xgboost_api import XGBOOST

X, Y = np.random.default_rng(1).normal(size=(40, 4)).astype("f4"), np.arange(40, dtype="f4")
RIDGE = Ridge().fit(X, Y)


def network() -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def worker(_: Any) -> None:
    """Does nothing."""


def fit_of(estimator: Callable[..., Any]) -> Callable[..., Any]:
    """An estimator's ``fit`` with parameters that are checked there."""

    def fit(x: Any = X, y: Any = Y, **params: Any) -> Any:
        return estimator(**params).fit(x, y > 3 if hasattr(estimator, "predict_proba") else y)

    fit.__signature__ = inspect.signature(estimator)  # type: ignore[attr-defined]
    return fit


# A call of each verb that is right, and whose signature tells what else it takes.
VERBS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "fit": (dt.fit, lambda x=X, y=Y, **given: dt.fit(network(), x, y, **given)),
    "fit of torch": (
        fit_function(MODULES),
        lambda x=X, y=Y, **given: dt.fit(
            torch.nn.Linear(4, 1), x, y[:, None], loss=torch.nn.MSELoss(), **{"optimizer": torch.optim.Adam, **given}
        ),
    ),
    "fit of XGBoost": (fit_function(XGBOOST), lambda x=X, y=Y, **given: dt.fit(xgboost.XGBRegressor(), x, y, **given)),
    "fit of LightGBM": (
        fit_function(LIGHTGBM),
        lambda x=X, y=Y, **given: dt.fit(lightgbm.LGBMRegressor(), x, y, **given),
    ),
    "train": (dt.train, lambda **given: dt.train(worker, **given)),
    "search": (
        dt.search,
        lambda x=X, y=Y, **given: dt.search(
            lambda _: network(), x, y, **{"metric": "loss", "direction": "minimize", **given}
        ),
    ),
    "search of a grid": (
        dt.search,
        lambda x=X, y=Y, **given: dt.search(Ridge(), x, y, **{"params": {"alpha": [1.0]}, "cv": 2, **given}),
    ),
    "search of estimators": (
        dt.search,
        lambda x=X, y=Y, **given: dt.search(lambda _: Ridge(), x, y, **{"cv": 2, **given}),
    ),
    "predict": (dt.predict, lambda **given: dt.predict(network(), X, **given)),
    "evaluate": (dt.evaluate, lambda x=X, y=Y, **given: dt.evaluate(network(), x, y, **given)),
    "evaluate of an estimator": (dt.evaluate, lambda x=X, y=Y, **given: dt.evaluate(RIDGE, x, y, **given)),
    "evaluate of torch": (
        evaluate_module,
        lambda x=X, y=Y, **given: dt.evaluate(torch.nn.Linear(4, 1), x, y[:, None], loss=torch.nn.MSELoss(), **given),
    ),
    "predict_to": (dt.predict_to, lambda **given: dt.predict_to("memory://wrong", RIDGE, X, **given)),
    "publish_dataset": (dt.publish_dataset, lambda **given: dt.publish_dataset(X, **{"name": "d", **given})),
    "persist": (dt.persist, lambda **given: dt.persist(X, **given)),
    "start_tensorflow": (dt.start_tensorflow, lambda **given: dt.start_tensorflow(**{"worker": 1, **given})),
    "Checkpoint": (dt.Checkpoint, lambda **given: dt.Checkpoint(**{"url": "out", **given})),
    "RecoveryPolicy": (dt.RecoveryPolicy, dt.RecoveryPolicy),
    "Patience": (dt.Patience, lambda **given: dt.Patience(**{"monitor": "loss", "patience": 3, **given})),
    "Incremental": (
        sklearn.Incremental,
        lambda x=X, y=Y, **given: sklearn.Incremental(SGDRegressor(), **given).fit(x, y),
    ),
    **{name: (getattr(linear_model, name), fit_of(getattr(linear_model, name))) for name in linear_model.__all__},
}

# What arguments are, by their names, and what is none.
WRONG: dict[str, tuple[frozenset[str], tuple[Any, ...]]] = {
    "count": (
        frozenset(
            [
                "epochs",
                "batch_size",
                "steps_per_epoch",
                "validation_steps",
                "validation_batch_size",
                "validation_freq",
                "initial_epoch",
                "workers",
                "ps",
                "scorer",
                "trials",
                "concurrency",
                "workers_per_trial",
                "keep",
                "every_steps",
                "max_restarts",
                "patience",
                "queue_size",
                "max_iter",
                "worker",
                "sync_every",
            ]
        ),
        (True, "3", -1, 2.5),
    ),
    "seed": (frozenset({"seed"}), (True, "3", 2.5)),
    "number": (
        frozenset(
            [
                "timeout_s",
                "every_s",
                "min_delta",
                "validation_split",
                "tol",
                "alpha",
                "C",
                "l1_ratio",
                "max_loss_increase",
                "max_norm",
                "clip_norm",
                "max_grad_norm",
                "outer_learning_rate",
                "outer_momentum",
            ]
        ),
        (True, "3", -1.0),
    ),
    "flag": (
        frozenset(
            [
                "wait",
                "resume",
                "overwrite",
                "override",
                "progress",
                "verbose",
                "shuffle",
                "streaming",
                "restore_best",
                "retry_errors",
                "fit_intercept",
                "warm_start",
                "leave_servers",
            ]
        ),
        ("no", "false"),
    ),
    "power": (frozenset({"power"}), ("3",)),
    "name": (frozenset({"name"}), ("n" * 250, 3, "")),
}
CASES = [
    (verb, name, wrong)
    for verb, (signed, _) in VERBS.items()
    for name in inspect.signature(signed).parameters
    for names, values in WRONG.values()
    if name in names and (verb, name) != ("publish_dataset", "name")  # which Dask takes
    for wrong in values
]


class StartedError(Exception):
    """A cluster was started."""


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise StartedError

    def get_client() -> None:
        raise ValueError

    monkeypatch.setattr(clients, "start_local_cluster", start)
    monkeypatch.setattr(clients, "get_client", get_client)


@pytest.mark.parametrize(("verb", "name", "wrong"), CASES)
def test_what_it_is_not_is_refused_by_name(verb: str, name: str, wrong: Any) -> None:
    _, call = VERBS[verb]
    with pytest.raises((TypeError, ValueError), match=name):
        call(**{name: wrong})


LEARNS = [verb for verb, (_, call) in VERBS.items() if "y" in getattr(call, "__code__", worker.__code__).co_varnames]


@pytest.mark.parametrize("verb", LEARNS)
@pytest.mark.parametrize("lazy", [False, True])
def test_no_rows_are_refused(verb: str, lazy: bool) -> None:
    x, y = (da.from_array(each[:0]) for each in (X, Y)) if lazy else (X[:0], Y[:0])
    with pytest.raises((TypeError, ValueError), match=r"no rows|0 sample|There are no rows|minimum of 1"):
        VERBS[verb][1](x=x, y=y)


@pytest.mark.parametrize("verb", ["train", "start_tensorflow"])
def test_names_of_roles_are_not_longer_than_those_of_files(verb: str) -> None:
    long = "r" * 250
    given = {"roles": {long: 1}} if verb == "train" else {"jobs": {long: 1}}
    with pytest.raises(ValueError, match=r"'r{40}'\.\.\. can't be a .* name: .* 80 in all"):
        VERBS[verb][1](**given)


@pytest.mark.parametrize("params", [{}, [], [{}]])
def test_a_grid_without_parameters_is_refused(params: Any) -> None:
    with pytest.raises(ValueError, match="has no points: there is nothing to search"):
        VERBS["search of a grid"][1](params=params)


@pytest.mark.parametrize("verb", ["fit", "fit of torch"])
def test_a_score_that_the_model_does_not_give_is_told_at_the_call(verb: str) -> None:
    with pytest.raises(ValueError, match=r"stop looks at los, and the model's scores are loss. Did you mean 'loss'"):
        VERBS[verb][1](stop="los < 1")
    for known in ("loss < 1", "epoch >= 2", "seconds > 3"):
        with pytest.raises(StartedError):
            VERBS[verb][1](stop=known)
