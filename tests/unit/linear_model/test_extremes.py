"""Data that solvers stumble over: units far apart, means far from 0, constants, classes and numbers of nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn import linear_model as plain
from sklearn.exceptions import ConvergenceWarning

from dask_train import linear_model as ours
from dask_train.linear_model.solving import SOLVERS, WITH_L1

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 4))
SIGNAL = X @ [0.8, -0.5, 0.3, 0.1]
UNITS = np.array([1e-8, 1e-3, 1e4, 1e8])
BINARY = (SIGNAL + RANDOM.logistic(size=300) > 0).astype(int)
COUNTS = RANDOM.poisson(np.exp(SIGNAL / 2))
NUMBERS = SIGNAL + RANDOM.normal(size=300)
WEIGHTS = RANDOM.integers(0, 3, 300).astype(float)
EXACT = {"tol": 1e-9, "max_iter": 2000}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("kind", "y", "free"),
    [("LogisticRegression", BINARY, {"C": np.inf}), ("PoissonRegressor", COUNTS, {"alpha": 0.0})],
)
def test_units_of_features_do_not_matter_without_a_penalty(kind, y, free, solver):
    wanted = getattr(plain, kind)(**free, solver="newton-cholesky", tol=1e-10).fit(X, y, WEIGHTS)
    found = getattr(ours, kind)(**free, **EXACT, solver=solver).fit(X * UNITS, y, WEIGHTS)
    np.testing.assert_allclose(np.ravel(found.coef_) * UNITS, np.ravel(wanted.coef_), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("C", [1e-20, 1e-10, 1.0])
def test_a_penalty_that_outweighs_the_rows_leaves_the_intercept_alone(C, solver):  # noqa: N803
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = ours.LogisticRegression(C=C, **EXACT, solver=solver).fit(X * UNITS, BINARY)
    newton = ours.LogisticRegression(C=C, **EXACT).fit(X * UNITS, BINARY)
    np.testing.assert_allclose(found.decision_function(X * UNITS), newton.decision_function(X * UNITS), atol=1e-5)
    share = 1 / (1 + np.exp(-found.decision_function(X * UNITS)))
    assert share.mean() == pytest.approx(BINARY.mean(), abs=1e-6), "as it is at the minimum over the intercept"


def test_squares_of_columns_in_any_units_and_constant_ones():
    columns = np.column_stack([X * UNITS, np.full(300, 3.7), np.full(300, 1e8), np.zeros(300)])
    for model, other in (
        (ours.LinearRegression(), plain.LinearRegression()),
        (ours.Ridge(1e-9), plain.LinearRegression()),
    ):
        penalised = isinstance(model, ours.Ridge)
        units = np.ones(4) if penalised else UNITS
        given = np.column_stack([X * units, columns[:, 4:]])
        found, wanted = model.fit(given, NUMBERS, WEIGHTS), other.fit(X, NUMBERS, WEIGHTS)
        np.testing.assert_allclose(found.coef_[:4] * units, wanted.coef_, rtol=1e-6)
        np.testing.assert_allclose(found.coef_[4:], 0, atol=1e-12)
        np.testing.assert_allclose(found.predict(given), wanted.predict(X), rtol=1e-6, atol=1e-6)
    for solver in WITH_L1:
        settings = {"alpha": 1e-6, "l1_ratio": 0.0, "solver": solver, "tol": 1e-9, "max_iter": 20_000}
        found = ours.ElasticNet(**settings).fit(np.column_stack([X, columns[:, 4:]]), NUMBERS, WEIGHTS)
        wanted = plain.Ridge(1e-6 * WEIGHTS.sum(), solver="svd").fit(X, NUMBERS, WEIGHTS)
        np.testing.assert_allclose(found.coef_[:4], wanted.coef_, rtol=1e-6)
        np.testing.assert_allclose(found.coef_[4:], 0, atol=1e-12)


@pytest.mark.parametrize("solver", ["newton-cholesky", "newton-cd", "lbfgs", "proximal_gradient"])
def test_means_far_from_0(solver):
    far = X + np.array([1e4, 0, 0, -1e4])
    wanted = plain.LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10).fit(X, BINARY)
    found = ours.LogisticRegression(C=1.0, **EXACT, solver=solver).fit(far, BINARY)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_class_whose_rows_count_for_nothing(solver):
    y = np.arange(300) % 3
    model = ours.LogisticRegression(solver=solver, class_weight="balanced", max_iter=1000)
    found = model.fit(X, y, (y != 2).astype(float))
    assert np.isfinite(found.coef_).all()
    assert np.isfinite(found.intercept_).all()
    assert (found.predict(X) != 2).all()


def test_numbers_that_can_not_be():
    for model, told in (
        (ours.Ridge(np.inf), "alpha is inf; it is a number from 0"),
        (ours.LogisticRegression(C=1e-320), "1 / C is inf"),
        (ours.LogisticRegression(max_iter=10.5), r"max_iter is 10.5; it is a whole number of steps"),
    ):
        with pytest.raises(ValueError, match=told):
            model.fit(X, BINARY)
    for model in (ours.Lasso(), ours.LinearRegression(), ours.PoissonRegressor()):
        with pytest.raises(ValueError, match=r"X has values up to .*e\+200, whose squares have no number"):
            model.fit(X * 1e200, BINARY)


def test_a_warm_start_with_other_features_begins_anew():
    model = ours.ElasticNet(0.1, warm_start=True, tol=1e-9).fit(X, NUMBERS)
    found = model.fit(X[:, :2], np.column_stack([NUMBERS, SIGNAL]))
    wanted = ours.ElasticNet(0.1, tol=1e-9).fit(X[:, :2], np.column_stack([NUMBERS, SIGNAL]))
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6)
