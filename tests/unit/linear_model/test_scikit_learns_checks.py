"""scikit-learn's ``check_estimator`` of every class with every solver."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from dask_train import linear_model as ours
from dask_train.linear_model.solving import SMOOTH, WITH_L1

# Each takes a second or more; what is not slow has each class, and most solvers, once.
QUICK = {
    ("LogisticRegression", "newton-cholesky", 0.0),
    ("PoissonRegressor", "newton-cd", 0.5),
    ("GammaRegressor", "lbfgs", 0.0),
    ("TweedieRegressor", "gradient_descent", 0.0),
    ("ElasticNet", "proximal_gradient", 0.5),
    ("Lasso", "newton-cd", 1.0),
}


def combinations() -> Iterator[Any]:
    for name in ("LogisticRegression", "PoissonRegressor", "GammaRegressor", "TweedieRegressor"):
        more = {"power": 1.5} if name == "TweedieRegressor" else {}
        found = [(solver, 0.0) for solver in SMOOTH] + [(solver, 0.5) for solver in WITH_L1]
        for solver, ratio in found if name == "LogisticRegression" else [*found, ("newton-cd", 1.0)]:
            yield of(name, solver, ratio, **more, l1_ratio=ratio, max_iter=1000)
    for solver in WITH_L1:
        yield of("Lasso", solver, 1.0)
        yield of("ElasticNet", solver, 0.5)
    yield pytest.param(ours.LinearRegression(), id="LinearRegression")
    yield pytest.param(ours.Ridge(), id="Ridge")


def of(name: str, solver: str, ratio: float, **settings: Any) -> Any:
    marks = () if (name, solver, ratio) in QUICK else (pytest.mark.slow,)
    return pytest.param(getattr(ours, name)(solver=solver, **settings), id=f"{name}-{solver}-{ratio}", marks=marks)


@pytest.mark.parametrize("model", list(combinations()))
def test_scikit_learns_own_checks(model):
    with warnings.catch_warnings():
        # One check leaves one label only, of which an intercept grows for ever.
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(model, on_skip=None, on_fail=None)
    assert [(each["check_name"], each["exception"]) for each in results if each["status"] == "failed"] == []
