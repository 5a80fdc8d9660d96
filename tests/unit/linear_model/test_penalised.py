"""Penalties of absolute values: scikit-learn's coefficients by each solver, in this process and over ranks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn import linear_model as plain
from sklearn.exceptions import ConvergenceWarning

from dask_train import linear_model as ours
from dask_train.linear_model.coordinate_descent import coordinate_descent, violation
from dask_train.linear_model.families import Logistic, Multinomial, Tweedie
from dask_train.linear_model.fitting import Task
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.solving import WITH_L1

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 8)) * [1, 2, 0.5, 1, 3, 1, 1, 10] + 1
SIGNAL = X @ [0.5, -0.3, 1.0, 0.0, 0.1, -0.4, 0.0, 0.0]
WEIGHTS = RANDOM.integers(0, 4, 300).astype(float)
NUMBERS = SIGNAL + RANDOM.normal(size=300) + 1000
BINARY = (SIGNAL + RANDOM.logistic(size=300) > 0.7).astype(int)
CLASSES = np.digitize(SIGNAL + RANDOM.logistic(size=300), [0, 1.5])
COUNTS = RANDOM.poisson(np.exp(SIGNAL / 3))
EXACT = {"tol": 1e-10, "max_iter": 20_000}


@pytest.mark.parametrize("solver", WITH_L1)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Lasso", {"alpha": 0.1}),
        ("Lasso", {"alpha": 0.1, "fit_intercept": False}),
        ("Lasso", {"alpha": 50.0}),
        ("ElasticNet", {"alpha": 0.2, "l1_ratio": 0.3}),
        ("ElasticNet", {"alpha": 0.2, "l1_ratio": 0.0}),
    ],
)
def test_squares_have_scikit_learns_coefficients(name, settings, weights, solver):
    found = getattr(ours, name)(**settings, **EXACT, solver=solver).fit(X, NUMBERS, weights)
    wanted = getattr(plain, name)(**settings, tol=1e-14, max_iter=100_000).fit(X, NUMBERS, weights)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, rtol=1e-6)
    assert ((found.coef_ == 0) == (np.abs(wanted.coef_) < 1e-12)).all(), "what is 0 is exactly that"


@pytest.mark.parametrize("solver", WITH_L1)
@pytest.mark.parametrize(("y", "settings"), [(BINARY, {"C": 0.1}), (CLASSES, {"C": 0.2, "class_weight": "balanced"})])
def test_logistic_regression_has_scikit_learns_coefficients(y, settings, solver):
    found = ours.LogisticRegression(**settings, **EXACT, l1_ratio=0.6, solver=solver).fit(X, y)
    saga = plain.LogisticRegression(**settings, l1_ratio=0.6, solver="saga", tol=1e-10, max_iter=100_000)
    wanted = saga.fit(X, y)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-5, atol=1e-6)
    intercepts = wanted.intercept_ - (wanted.intercept_.mean() if len(wanted.intercept_) > 1 else 0)
    np.testing.assert_allclose(found.intercept_, intercepts, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", [ours.PoissonRegressor(alpha=0.2), ours.TweedieRegressor(alpha=0.2, power=1.5)])
def test_solvers_come_to_the_same_minimum(model):
    found = [
        model.set_params(**EXACT, l1_ratio=0.5, solver=solver).fit(X / [1, 1, 1, 1, 1, 1, 1, 10], COUNTS).coef_.copy()
        for solver in WITH_L1
    ]
    assert (found[0] == 0).any()
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", WITH_L1)
def test_sparse_features_collinear_ones_and_several_targets(solver):
    two = np.column_stack([NUMBERS, COUNTS])
    settings = {"alpha": 0.2, "l1_ratio": 0.4, "solver": solver, **EXACT}
    dense = ours.ElasticNet(**settings).fit(X, two)
    assert (dense.coef_.shape, dense.intercept_.shape, len(dense.n_iter_)) == ((2, 8), (2,), 2)
    sparse = ours.ElasticNet(**settings).fit(scipy.sparse.csr_array(X), two)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(ours.ElasticNet(**settings).fit(X, COUNTS).coef_, dense.coef_[1], rtol=1e-7, atol=1e-10)
    doubled = ours.ElasticNet(**settings).fit(np.column_stack([X, X[:, 0], np.ones(300)]), NUMBERS)
    np.testing.assert_allclose(doubled.coef_[0], doubled.coef_[8], rtol=1e-5)
    assert doubled.coef_[9] == 0


@pytest.mark.parametrize("solver", WITH_L1)
@pytest.mark.parametrize("y", [(X[:, 0] > 1).astype(int), np.digitize(X[:, 0], [0, 2])])
def test_classes_that_a_plane_divides(y, solver):
    with pytest.warns(ConvergenceWarning, match="can be separated without an error|did not converge"):
        found = ours.LogisticRegression(C=np.inf, solver=solver, max_iter=200).fit(X[:, :1], y)
    assert np.isfinite(found.coef_).all()


def test_too_few_steps_are_told_and_a_warm_start_goes_on():
    model = ours.Lasso(alpha=0.01, solver="proximal_gradient", max_iter=1, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="proximal_gradient did not converge to tol=0.0001 within 1 steps"):
        model.fit(X, NUMBERS)
    assert model.set_params(max_iter=1000).fit(X, NUMBERS).n_iter_ > 1
    assert model.fit(X, NUMBERS).n_iter_ == 0


def test_a_solver_that_has_no_such_penalty_is_refused():
    with pytest.raises(
        ValueError, match=r"solver is 'lbfgs'; with l1_ratio=0.5 it is 'newton-cd', 'proximal_gradient'"
    ):
        ours.LogisticRegression(l1_ratio=0.5, solver="lbfgs").fit(X, BINARY)
    with pytest.raises(ValueError, match="l1_ratio is 2; it is a number from 0 to 1"):
        ours.ElasticNet(l1_ratio=2).fit(X, NUMBERS)


@pytest.mark.parametrize("solver", WITH_L1)
@pytest.mark.parametrize(
    ("family", "y", "classes"),
    [
        (Logistic(), BINARY, np.arange(2)),
        (Multinomial(3), CLASSES, np.arange(3)),
        (Tweedie(1), COUNTS, None),
        (0, 0, 0),
    ],
    ids=["logistic", "multinomial", "poisson", "squares"],
)
def test_ranks_with_uneven_and_without_rows(family, y, classes, solver, ranks_of):
    common = {"num_features": 8, "fit_intercept": True, "solver": solver, "tol": 1e-10, "max_iter": 20_000}
    if family:
        task = Task(family=family, alpha=0.1, l1_ratio=0.5, of_sum=False, classes=classes, **common)
    else:
        y, task = NUMBERS, PenalisedSquares(l1=0.1, l2=0.1, **common)
    scaled = X / [1, 1, 1, 1, 1, 1, 1, 10]

    def coef_of(fitted):
        return np.concatenate([each.coef for each in (fitted if isinstance(fitted, list) else [fitted])])

    whole = coef_of(ranks_of([[(scaled, y)]], task)[0])
    cut = [[(scaled[:250], y[:250])], [], [(scaled[250:251], y[250:251]), (scaled[251:], y[251:])]]
    found = list(map(coef_of, ranks_of(cut, task)))
    for its in found:
        np.testing.assert_allclose(its, whole, rtol=1e-6, atol=1e-8)
        assert its.tobytes() == found[0].tobytes()


def test_coordinate_descent_ends_at_the_minimum_also_of_a_singular_model():
    rows = RANDOM.normal(size=(5, 12))
    hessian, gradient, l1 = rows.T @ rows, RANDOM.normal(size=12), np.full(12, 0.3)
    gradient = hessian @ gradient  # in its range, as a loss has it
    found = coordinate_descent(hessian, gradient, np.zeros(12), l1, 1e-10)
    assert violation(found, gradient + hessian @ found, l1) <= 1e-10
