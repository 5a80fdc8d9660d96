"""The shipped suite for Dask collections, of every class, fitted in this process by what ranks of a run call."""

from __future__ import annotations

import pytest

from dask_train import linear_model as ours
from dask_train.testing import check_dask_estimator

EXACT = {"tol": 1e-9, "max_iter": 10_000, "workers": 0}
MODELS = [
    ours.LogisticRegression(**EXACT),
    ours.LogisticRegression(**EXACT, solver="admm", l1_ratio=0.5),
    ours.LinearRegression(workers=0),
    ours.Ridge(workers=0),
    ours.Lasso(0.05, **EXACT),
    ours.ElasticNet(0.1, **EXACT, solver="proximal_gradient"),
    ours.PoissonRegressor(**EXACT),
    ours.GammaRegressor(**EXACT, solver="lbfgs"),
    ours.TweedieRegressor(**EXACT, power=1.5, solver="gradient_descent"),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_they_hold_to_the_suite_for_dask_collections(model):
    assert "check_methods_are_lazy" in check_dask_estimator(model)


def test_every_class_is_checked():
    assert {type(model).__name__ for model in MODELS} == set(ours.__all__)
